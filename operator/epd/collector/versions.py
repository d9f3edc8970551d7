"""Carries out the steps of versions: marks, absolves, renames into the trash, each asked anew. Deletes no entry."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from epd.api.names import Reason
from epd.collector.clock import Reading
from epd.collector.files import Files, directory
from epd.collector.histogram import Histogram
from epd.collector.house import SPARE, House
from epd.collector.inputs import Ask, Policy
from epd.collector.ledger import Ledger
from epd.collector.lifecycle import MAX_LIVENESS_AGE, Kind, Standing, Step, decide
from epd.collector.result import Cause, Spared
from epd.collector.scan import Scanner, Tally
from epd.connector import layout as names

SPARES: Final = 16
"""Marks that can be made on a full disk before anything is freed: the versions of a few roll-outs."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_MARK: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True, kw_only=True)
class Versions:
    """Changes the state of versions of one root, within one pass."""

    files: Files
    house: House
    ledger: Ledger
    policy: Policy
    reading: Reading
    ask: Ask
    clock: Callable[[], float]
    nonce: Callable[[], str]
    scanner: Scanner

    def standings(self, versions: Sequence[str]) -> tuple[Standing, ...]:
        """Read from the names on disk where each version is in its life."""
        return tuple(self._standing(version) for version in versions)

    def _standing(self, version: str) -> Standing:
        mark = self._stat(version, self.house.parts.get(names.CONDEMNED))
        found = self._stat(version, self.house.root)
        return Standing(
            version=version,
            present=found is not None and stat.S_ISDIR(found.st_mode) and found.st_dev == self.house.device,
            condemned=mark.st_mtime if mark is not None else None,
        )

    def _stat(self, name: str, dir_fd: int | None) -> os.stat_result | None:
        if dir_fd is None:
            return None
        try:
            return self.files.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        except OSError as error:
            # What cannot be looked at has no mark, or is not there: either way its grace begins anew.
            if error.errno != errno.ENOENT:
                self.ledger.error("stat", error)
            return None

    def carry_out(self, steps: Sequence[Step]) -> None:
        """Do what was decided, as far as a fresh answer of the API server still says so."""
        for step in steps:
            if step.kind is Kind.ABSOLVE:
                self._absolve(step)
        condemn = [step.version for step in steps if step.kind is Kind.CONDEMN]
        if condemn:
            for step in self._again(condemn):
                if step.kind is Kind.CONDEMN:
                    self._condemn(step)
        for step in steps:
            if step.kind is Kind.REMOVE:
                self._remove(step)

    def _again(self, versions: Sequence[str]) -> tuple[Step, ...]:
        liveness = self.ask()
        return decide(self.standings(versions), liveness, self.policy, self.reading, self.clock())

    def _absolve(self, step: Step) -> None:
        condemned = self.house.parts.get(names.CONDEMNED)
        if condemned is None or self.policy.dry_run:
            return
        try:
            self.files.unlink(step.version, dir_fd=condemned)
            self.ledger.absolved.append(step.version)
        except FileNotFoundError:
            pass
        except OSError as error:
            self.ledger.error("unlink", error)

    def _condemn(self, step: Step) -> None:
        condemned = self.house.parts.get(names.CONDEMNED)
        if self.policy.dry_run:
            self._list(step.version)
            return
        if condemned is None:
            return
        try:
            self.files.close(self.files.open(step.version, _MARK, names.FILE_MODE, dir_fd=condemned))
        except FileExistsError:
            return
        except OSError as error:
            self.ledger.error("open", error)
            if error.errno not in _FULL or not self._condemn_with_spare(step, condemned):
                return
        self.ledger.condemned.append(step.version)

    def _condemn_with_spare(self, step: Step, condemned: int) -> bool:
        """Rename a file made beforehand into the mark. It is touched first, or its age would pass for the mark's."""
        spares = self.house.parts.get(SPARE)
        if spares is None:
            return False
        for number in range(SPARES):
            try:
                self.files.utime(str(number), None, dir_fd=spares, follow_symlinks=False)
                self.files.rename(str(number), step.version, src_dir_fd=spares, dst_dir_fd=condemned)
            except FileNotFoundError:
                continue
            except OSError as error:
                self.ledger.error("rename", error)
                return False
            return True
        return False

    def fill_spares(self) -> None:
        """Make the spare files that are missing, while there is room for them."""
        spares = self.house.parts.get(SPARE)
        if spares is None:
            return
        for number in range(SPARES):
            try:
                self.files.close(self.files.open(str(number), _MARK, names.FILE_MODE, dir_fd=spares))
            except FileExistsError:
                continue
            except OSError as error:
                self.ledger.error("open", error)
                return

    def _remove(self, step: Step) -> None:
        trash = self.house.parts.get(names.TRASH)
        try:
            before, tally = self._look(step.version)
            if not self._unused(step, tally):
                return
            if self.policy.dry_run:
                self._name(step.version, tally)
            elif trash is not None:
                self._rename(step, before, trash)
        except FileNotFoundError:
            return  # another collector was faster
        except OSError as error:
            self.ledger.error("rename", error)

    def _look(self, version: str) -> tuple[os.stat_result, Tally]:
        with directory(self.files, version, dir_fd=self.house.root) as fd:
            histogram = Histogram(self.reading.now)
            return self.files.fstat(fd), self.scanner.scan(fd, histogram, histogram)

    def _list(self, version: str) -> None:
        """Say in a dry run that a version would be condemned now and removed after its grace."""
        try:
            self._name(version, self._look(version)[1])
        except OSError as error:
            self.ledger.error("open", error)

    def _name(self, version: str, tally: Tally) -> None:
        age = self.reading.now - tally.newest if tally.entries else None
        self.ledger.list_victim(version, Cause.DEAD_VERSION, tally.used_bytes, age)
        self.ledger.removed[Cause.DEAD_VERSION] += tally.entries
        self.ledger.freed[Cause.DEAD_VERSION] += tally.used_bytes

    def _unused(self, step: Step, tally: Tally) -> bool:
        """Tell whether nobody reads or writes the version; otherwise the set of live versions misses somebody."""
        if not tally.complete:
            self.ledger.trouble(
                Reason.COLLECTION_FAILED, f"version {step.version} cannot be read in full, so it is kept"
            )
            return False
        recent = step.grace > 0 and tally.newest > self.reading.now - step.grace
        if not recent and not tally.pinned:
            return True
        self.ledger.spared[Spared.PINNED if tally.pinned else Spared.FRESH] += 1
        if step.grace > 0:  # without a grace these are the pins of pods that have just ended
            how = "has pinned entries" if tally.pinned else "was used within its grace"
            self.ledger.trouble(
                Reason.VERSION_IN_USE_BY_STRANGER,
                f"version {step.version} {how}, though no object of the namespace names it; it is kept",
            )
        return False

    def _rename(self, step: Step, before: os.stat_result, trash: int) -> None:
        asked = self.clock()
        again = self._again([step.version])[0]
        if again.kind is Kind.ABSOLVE:
            self._absolve(again)
        if again.kind is not Kind.REMOVE:
            return
        now = self.files.stat(step.version, dir_fd=self.house.root, follow_symlinks=False)
        if (now.st_ino, now.st_dev) != (before.st_ino, before.st_dev):
            self.ledger.spared[Spared.CHANGED] += 1
            return
        # Any call may hang for minutes, the last look too; the rename alone is out of reach.
        if self.clock() - asked > MAX_LIVENESS_AGE:
            self.ledger.spared[Spared.SLOW] += 1
            return
        target = f"{step.version}.{self.nonce()}"
        self.files.rename(step.version, target, src_dir_fd=self.house.root, dst_dir_fd=trash)
        self.ledger.renamed.append(step.version)
        # A version without a grace has no mark, and on a full disk perhaps no place for marks.
        with suppress(OSError, KeyError):
            self.files.unlink(step.version, dir_fd=self.house.parts[names.CONDEMNED])
        with suppress(OSError):  # its age tells how long the record outlived the directory
            record = names.record_name(step.version)
            self.files.utime(record, None, dir_fd=self.house.parts[names.VERSIONS], follow_symlinks=False)
