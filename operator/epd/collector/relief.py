"""Frees what age and watermarks ask for: pressure, then cut-offs from the histograms, then one stream per need."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from epd.api.names import Reason
from epd.collector.clock import Reading
from epd.collector.evict import Eviction, Rule
from epd.collector.files import Files
from epd.collector.house import House
from epd.collector.inputs import Policy
from epd.collector.ledger import Ledger
from epd.collector.pace import Pace
from epd.collector.result import Cause, VolumeFacts
from epd.collector.survey import Survey
from epd.collector.watermark import Need, Pressure, pressure


@dataclass(slots=True, kw_only=True)
class Relief:
    """Eviction from live versions, within one pass."""

    files: Files
    house: House
    policy: Policy
    ledger: Ledger
    pace: Pace
    clock: Callable[[], float]
    reading: Reading
    survey: Survey

    def look(self) -> Pressure:
        """Return what must be freed now, and say if that is not for us to free."""
        found = pressure(self._usage(), self.survey.ours, self.survey.used_by_version, self.policy)
        if found.foreign_dominates:
            self.ledger.trouble(
                Reason.FOREIGN_DATA_DOMINATES,
                "what is not ours exceeds the high watermark by itself; no entry goes for it",
            )
        return found

    def evict(self) -> bool:
        """Evict what is due; True if more is needed than the survey could point at."""
        if not self.reading.reliable or self.reading.steady < self.policy.min_idle:
            return False
        self.pace.begin(math.inf)
        eviction = Eviction(
            files=self.files,
            device=self.house.device,
            ledger=self.ledger,
            pace=self.pace,
            clock=self.clock,
            now=self.reading.now,
            dry_run=self.policy.dry_run,
            example=self.policy.evict_example,
            gone=self.survey.gone,
        )
        self._expire(eviction)
        needs = self.look().needs
        for need in needs:
            if need.versions is not None:
                self._free(need, eviction)
        # Anew: what the shares were to free may have stayed, being pinned, in use or of a layout that keeps it.
        for need in self._volume_needs():
            self._free(need, eviction)
        return bool(needs) and not self.policy.dry_run and bool(self.look().needs)

    def _volume_needs(self) -> tuple[Need, ...]:
        """Return what the volume as a whole needs, whatever single objects are allowed."""
        whole = replace(self.policy, max_sizes=())
        return pressure(self._usage(), self.survey.ours, self.survey.used_by_version, whole).needs

    def _usage(self) -> VolumeFacts:
        usage = volume(self.files, self.house)
        if self.policy.dry_run:
            pretended = sum(self.ledger.freed.values())
            usage = replace(usage, used_bytes=max(0, usage.used_bytes - pretended))
        return usage

    def _expire(self, eviction: Eviction) -> None:
        before = self._old_before()
        if before == -math.inf:
            return
        oldest = self.survey.everything.bucket(before)
        if any(self.survey.everything.counts[oldest:]):
            rule = Rule(cause=Cause.TTL, idle_before=before, reference=self.survey.everything)
            self._stream(eviction, rule, None)

    def _old_before(self) -> float:
        """Return the time of last use that age alone removes; -inf if it removes nothing."""
        if self.policy.entry_ttl is None:
            return -math.inf
        return self.reading.now - max(self.policy.entry_ttl, self.policy.min_idle)

    def _free(self, need: Need, eviction: Eviction) -> None:
        histogram = self.survey.everything
        if need.versions is not None:
            histogram = next(group for versions, group in self.survey.groups if versions == need.versions)
        cutoff = histogram.cutoff(need.need_bytes, need.need_entries)
        if cutoff is None:
            return
        rule = Rule(
            cause=need.cause,
            idle_before=self.reading.now - self.policy.min_idle,
            reference=histogram,
            cutoff=cutoff,
            listed_before=self._old_before() if self.policy.dry_run else -math.inf,
        )
        self._stream(eviction, rule, need.versions)

    def _stream(self, eviction: Eviction, rule: Rule, only: frozenset[str] | None) -> None:
        for version in sorted(self.survey.versions):
            if (only is None or version in only) and not eviction.evict(version, rule, root=self.house.root):
                return


def volume(files: Files, house: House) -> VolumeFacts:
    """Return the usage; capacity is what a user without privileges can have, as df has it. Raises OSError."""
    found = files.fstatvfs(house.root)
    used = (found.f_blocks - found.f_bfree) * found.f_frsize
    used_inodes = found.f_files - found.f_ffree
    return VolumeFacts(
        capacity_bytes=used + found.f_bavail * found.f_frsize,
        used_bytes=used,
        capacity_inodes=used_inodes + found.f_favail if found.f_files else 0,
        used_inodes=used_inodes if found.f_files else 0,
    )
