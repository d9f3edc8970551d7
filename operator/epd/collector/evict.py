"""Evicts entries of live versions: those that a cut-off chose, each looked at once more right before it goes.

Never an entry with a second link (a reader pins it), none used within `minIdle`, no directory, no name that a connector
does not write.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from epd.collector.files import Entry, Files, directory
from epd.collector.histogram import Cutoff, Histogram
from epd.collector.ledger import Ledger
from epd.collector.pace import BATCH, Pace
from epd.collector.result import Cause, Spared
from epd.collector.scan import BLOCK, is_elsewhere
from epd.connector import layout as names

CHECK_LIFETIME: Final = 0.05
"""Seconds that a check of an entry is worth: what a reader needs from looking to pinning (gc.md 3.4)."""

_LOOK: Final = 1024
"""Entries that stay between two looks at the stop flag: about 5 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Which entries go. `idle_before`: the latest server time of last use that may go at all."""

    cause: Cause
    idle_before: float
    reference: Histogram
    """Tells the bucket of an entry, as when the cut-off was chosen."""
    cutoff: Cutoff | None = None
    """None: everything that was last used before `idle_before`."""
    listed_before: float = float("-inf")
    """What was last used before it was listed by a dry run already."""


@dataclass(slots=True, kw_only=True)
class Eviction:
    """Evicts within one slice of time.

    Attributes:
        example: Whether also entries that vLLM's connector wrote.
        gone: Told each evicted entry: version, time of last use, bytes.
    """

    files: Files
    device: int
    ledger: Ledger
    pace: Pace
    clock: Callable[[], float]
    now: float
    dry_run: bool
    example: bool
    gone: Callable[[str, float, int], None]
    left: int = 0

    def evict(self, version: str, rule: Rule, *, root: int) -> bool:
        """Evict from one version; False if the slice was spent before its end."""
        try:
            with directory(self.files, version, dir_fd=root) as fd:
                shards: list[str] = []
                return self._evict_top(version, fd, rule, shards) and all(
                    self._evict_shard(version, shard, fd, rule) for shard in shards
                )
        except OSError as error:
            self._failed("open", error)
        return True

    def _evict_shard(self, version: str, shard: str, dir_fd: int, rule: Rule) -> bool:
        try:
            with directory(self.files, shard, dir_fd=dir_fd) as fd, self.files.scandir(fd) as entries:
                for name in self._entries(entries):
                    if self._spent():
                        return False
                    self._consider(f"{version}/{shard}/{name}", name, fd, rule)
        except OSError as error:
            self._failed("open", error)
        return not self.pace.over

    def _entries(self, entries: Iterator[Entry]) -> Iterator[str]:
        return (entry.name for entry in entries if names.ENTRY_PATTERN.fullmatch(entry.name))

    def _evict_top(self, version: str, dir_fd: int, rule: Rule, shards: list[str]) -> bool:
        """Evict entries of vLLM's connector, as far as they may go, and add our shards to `shards`."""
        with self.files.scandir(dir_fd) as entries:
            for number, entry in enumerate(entries):
                if number % _LOOK == 0 and self.pace.over:
                    return False
                if names.SHARD_PATTERN.fullmatch(entry.name):
                    shards.append(entry.name)
                elif self.example and entry.is_dir(follow_symlinks=False):
                    if self._spent():
                        return False
                    self._evict_example(version, entry.name, dir_fd, rule)
        return True

    def _evict_example(self, version: str, identifier: str, dir_fd: int, rule: Rule) -> None:
        path = f"{identifier}/{names.EXAMPLE_ENTRY}"
        if self._chosen(self._look(path, dir_fd), rule) is None:
            return
        try:
            with directory(self.files, identifier, dir_fd=dir_fd) as fd:
                self._consider(f"{version}/{path}", names.EXAMPLE_ENTRY, fd, rule)
        except OSError as error:
            self._failed("open", error)

    def _spent(self) -> bool:
        """Ask the pace for another batch when one is used up."""
        if self.left <= 0:
            if not self.pace.take(BATCH):
                return True
            self.left = BATCH
        return False

    def _look(self, path: str, dir_fd: int) -> os.stat_result | None:
        try:
            return self.files.stat(path, dir_fd=dir_fd, follow_symlinks=False)
        except OSError as error:
            self._failed("stat", error)
            return None

    def _chosen(self, status: os.stat_result | None, rule: Rule) -> int | None:
        """Return the bucket of an entry that is to go by this very look at it; None for one that stays."""
        if status is None or not stat.S_ISREG(status.st_mode) or status.st_dev != self.device:
            return None
        if status.st_mtime <= rule.listed_before:
            return None
        bucket = rule.reference.bucket(status.st_mtime)
        if rule.cutoff is not None and not rule.cutoff.covers(bucket):
            return None
        if status.st_nlink > 1:
            self.ledger.spared[Spared.PINNED] += 1
            return None
        if status.st_mtime > rule.idle_before:
            if rule.cutoff is not None:
                self.ledger.spared[Spared.FRESH] += 1
            return None
        return bucket

    def _consider(self, path: str, name: str, fd: int, rule: Rule) -> None:
        """Look, decide and unlink back to back: what is decided by is never older than `CHECK_LIFETIME`."""
        began = self.clock()
        status = self._look(name, fd)
        bucket = self._chosen(status, rule)
        if bucket is None or status is None:
            return
        size = status.st_blocks * BLOCK
        if self.dry_run:
            self.ledger.list_victim(path, rule.cause, size, self.now - status.st_mtime)
        else:
            if self.clock() - began > CHECK_LIFETIME:
                self.ledger.spared[Spared.SLOW] += 1
                return
            try:
                self.files.unlink(name, dir_fd=fd)
            except OSError as error:
                self._failed("unlink", error)
                return
        self.left -= 1
        self.ledger.remove(rule.cause, size)
        if rule.cutoff is not None:
            rule.cutoff.spend(bucket, size)
        self.gone(path.partition("/")[0], status.st_mtime, size)

    def _failed(self, call: str, error: OSError) -> None:
        if is_elsewhere(error):
            self.ledger.spared[Spared.FOREIGN] += 1
        elif not isinstance(error, FileNotFoundError):
            self.ledger.error(call, error)
