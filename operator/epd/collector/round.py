"""One pass over a root that is ours, step by step. Each step has a module that does it; here is only their order."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from epd.api.names import Reason
from epd.collector import records as records_
from epd.collector import survey as surveys
from epd.collector.clock import Reading, ServerClock
from epd.collector.documents import timestamp
from epd.collector.files import Files
from epd.collector.house import House
from epd.collector.inputs import Ask, Liveness, Policy
from epd.collector.ledger import Ledger
from epd.collector.lifecycle import Standing, decide
from epd.collector.owner import Owner
from epd.collector.pace import Pace
from epd.collector.pins import Pins
from epd.collector.records import Record, Records
from epd.collector.relief import Relief, volume
from epd.collector.result import Cause, VolumeFacts
from epd.collector.scan import Scanner
from epd.collector.survey import Survey
from epd.collector.sweep import TEMPORARY_AGE, Sweep
from epd.collector.trash import Purge, version_of
from epd.collector.versions import Versions
from epd.collector.watermark import pressure
from epd.connector import layout as names

TRASH_SLICE: Final = 5.0
"""Seconds of bulk deletion in a pass: eviction must be able to begin within 10 s of a crossing (gc.md 5)."""
SURVEY_LIFETIME: Final = 120.0
"""Seconds that a scan serves eviction under pressure, so that the first byte is freed without scanning first: two
intervals of passes."""


@dataclass(slots=True, kw_only=True)
class Round:
    """One pass. What it knows at its end is read by `outcome`."""

    files: Files
    house: House
    owner: Owner
    policy: Policy
    ledger: Ledger
    server: ServerClock
    ask: Ask
    clock: Callable[[], float]
    nonce: Callable[[], str]
    stopping: Callable[[], bool]
    pace: Pace
    records: Records
    survey: Survey | None
    """Of an earlier pass; replaced by a newer one."""
    resumes: bool
    """Whether the last pass ended before its work did."""
    reading: Reading | None = None
    liveness: Liveness | None = None
    standings: tuple[Standing, ...] = ()
    volume: VolumeFacts = field(default_factory=VolumeFacts)
    rescanned: bool = False
    more: bool = False

    @property
    def deletes(self) -> bool:
        """Whether anything on disk may change."""
        return self.policy.enabled and not self.policy.dry_run

    @property
    def asked_well(self) -> bool:
        """Whether the API server's answer may be acted on."""
        return self.liveness is not None and self.liveness.valid

    def run(self) -> None:
        """Make the pass. Raises OSError if the root or its housekeeping itself cannot be read."""
        self.reading = self._read_clock()
        self.liveness = self.ask()
        if not self.liveness.valid:
            self.ledger.trouble(Reason.LIVENESS_UNKNOWN, self.liveness.message)
        ours = self._records(self.liveness).keys()
        reading = self.reading
        if reading is not None:
            self._change_versions(ours, reading)
        self.volume = volume(self.files, self.house)
        self._look(ours, reading)
        self._purge()
        if reading is not None and self.survey is not None:
            # What a dry run only pretends to free stays in the count.
            self._evict(reading, copy.deepcopy(self.survey) if self.policy.dry_run else self.survey)
        if reading is not None and self.survey is not None:
            self._sweep(ours, reading, self.survey)
        self.volume = volume(self.files, self.house)

    def _read_clock(self) -> Reading | None:
        try:
            reading = self.server.read(self.files, self.house, min_idle=self.policy.min_idle)
        except OSError as error:
            self.ledger.error("utime", error)
            self.ledger.trouble(Reason.CLOCK_UNRELIABLE, f"the server's clock cannot be read: {error}")
            return None
        if not reading.reliable:
            self.ledger.trouble(
                Reason.CLOCK_UNRELIABLE, f"the server's clock jumped by {reading.skew:.0f} s; nothing is told by it yet"
            )
        return reading

    def _records(self, liveness: Liveness) -> Mapping[str, Record]:
        """Return the records that make versions ours, after writing those that live versions lack."""
        versions = self.house.parts.get(names.VERSIONS)
        ours: dict[str, Record] = {}
        if versions is not None:
            ours = self.records.load(self.files, versions, self.owner.names, self.ledger)
        if not self.policy.enabled or self.reading is None or not liveness.valid:
            return ours
        for version, declared in liveness.declared.items():
            if version in ours or version not in liveness.live or not names.is_version(version):
                continue
            record = Record(
                version=version,
                claim=self.owner.claim,
                layout=declared.layout,
                inputs=declared.inputs,
                created=timestamp(self.reading.now),
            )
            if self.policy.dry_run or (versions is not None and self._publish(record, versions)):
                ours[version] = record  # a dry run lists what the record that it does not write would make ours
        return ours

    def _publish(self, record: Record, versions: int) -> bool:
        try:
            return records_.publish(self.files, versions, record, self.nonce)
        except OSError as error:
            self.ledger.error("link", error)
            return False

    def _change_versions(self, ours: Set[str], reading: Reading) -> None:
        if self.liveness is None:
            return
        versions = Versions(
            files=self.files,
            house=self.house,
            ledger=self.ledger,
            policy=self.policy,
            reading=reading,
            ask=self.ask,
            clock=self.clock,
            nonce=self.nonce,
            scanner=self._scanner(),
        )
        names_ = sorted(ours)
        standings = versions.standings(names_)
        versions.carry_out(decide(standings, self.liveness, self.policy, reading, self.clock()))
        if self.deletes:
            versions.fill_spares()
        self.standings = versions.standings(names_)

    def _scanner(self) -> Scanner:
        return Scanner(self.files, self.house.device, self.ledger, self.stopping)

    def _look(self, ours: Set[str], reading: Reading | None) -> None:
        """Count everything, unless an earlier count serves: under pressure what matters is to begin.

        It does not where what is not in it would exceed the high watermark: that may have been written since, and be
        ours.
        """
        present = {one.version for one in self.standings if one.present}
        if reading is not None:
            ours = ours & present
        old = self.survey
        if old is not None and old.key == surveys.key(ours, self.policy):
            young = self.clock() - old.taken < SURVEY_LIFETIME
            found = pressure(self.volume, old.ours, old.used_by_version, self.policy)
            if young and (self.resumes or found.over) and not found.foreign_dominates:
                return
        now = reading.now if reading is not None else 0.0
        began = self.clock()
        scanner = self._scanner()
        survey = surveys.take(scanner, self.house, ours, self.policy, now=now, monotonic=began)
        if reading is not None and self.liveness is not None:
            pins = Pins(files=self.files, house=self.house, ledger=self.ledger, scanner=scanner)
            pins.look(reap=self.deletes and self.liveness.valid, liveness=self.liveness, reading=reading)
            survey.pinned_bytes, survey.pins = pins.used_bytes, pins.count
        survey.seconds = self.clock() - began
        self.survey, self.rescanned = survey, True

    def _purge(self) -> None:
        trash = self.house.parts.get(names.TRASH)
        if trash is None or not self.deletes:
            return
        self.pace.begin(TRASH_SLICE)
        purge = Purge(self.files, self.ledger, self.pace)
        with self.files.scandir(trash) as entries:
            found = [entry.name for entry in entries if version_of(entry.name) is not None]
        for name in found:
            before = self.ledger.freed[Cause.DEAD_VERSION], self.ledger.removed[Cause.DEAD_VERSION]
            gone = purge.purge(name, dir_fd=trash)
            self._purged(name, before, gone=gone)
            if self.pace.over:
                self.more = not self.stopping()
                return

    def _purged(self, name: str, before: tuple[int, int], *, gone: bool) -> None:
        """Take what was deleted out of the count, so that pressure is not told by what is there no more."""
        if gone:
            self.ledger.removed_versions += 1
        tally = self.survey.trash.get(name) if self.survey is not None else None
        if tally is None or self.survey is None:
            return
        if gone:
            del self.survey.trash[name]
            self.survey.trash_since.pop(name, None)
            return
        tally.used_bytes = max(0, tally.used_bytes - (self.ledger.freed[Cause.DEAD_VERSION] - before[0]))
        tally.entries = max(0, tally.entries - (self.ledger.removed[Cause.DEAD_VERSION] - before[1]))

    def _evict(self, reading: Reading, survey: Survey) -> None:
        relief = Relief(
            files=self.files,
            house=self.house,
            policy=self.policy,
            ledger=self.ledger,
            pace=self.pace,
            clock=self.clock,
            reading=reading,
            survey=survey,
        )
        relief.look()
        if not self.asked_well or not self.policy.enabled:
            return
        if relief.evict() and not self.rescanned:
            self.more, self.survey = not self.stopping(), None

    def _sweep(self, ours: Set[str], reading: Reading, survey: Survey) -> None:
        allowed = self.rescanned and self.asked_well and self.policy.enabled
        if not allowed or not reading.reliable or reading.steady < TEMPORARY_AGE:
            return
        sweep = Sweep(
            files=self.files, house=self.house, ledger=self.ledger, now=reading.now, dry_run=self.policy.dry_run
        )
        for version, tally in survey.versions.items():
            if reading.now - tally.oldest_temporary > TEMPORARY_AGE:
                sweep.version(version)
        live = self.liveness.live if self.liveness is not None else {}
        trash = {version_of(name) or "" for name in survey.trash}
        marked = {one.version for one in self.standings if one.condemned is not None}
        sweep.housekeeping(sorted(ours - live.keys() - survey.versions.keys() - trash - marked))
