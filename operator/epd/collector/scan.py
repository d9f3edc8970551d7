"""What lies in a version: one stat per entry, memory that does not grow with the entries. Changes nothing."""

from __future__ import annotations

import errno
import math
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from epd.collector.files import Entry, Files, directory
from epd.collector.histogram import LAST, SCALE, Histogram
from epd.collector.ledger import Ledger
from epd.connector import layout as names

BLOCK: Final = 512
"""Unit of st_blocks, whatever the file system (stat(2))."""
_CHUNK: Final = 4096
"""Entries between two looks at the stop flag: about 15 ms."""
_LINKED_LIMIT: Final = 100_000
"""Inodes with several links that are remembered, 9 MiB while the set grows: more than the pins of a busy claim. Those
beyond it may be counted twice."""
_ENTRY_LENGTH: Final = 64 + len(names.ENTRY_SUFFIX)
_ELSEWHERE: Final = frozenset({errno.ENOTDIR, errno.ELOOP, errno.EXDEV})
"""How what is not a plain directory of this mount refuses to be opened as one."""


def is_elsewhere(error: OSError) -> bool:
    """Tell whether a name was not opened because it is no plain directory of this mount."""
    return error.errno in _ELSEWHERE


@dataclass(slots=True)
class Tally:
    """What was counted of one version. `newest` is the last time of use or writing, -inf without any."""

    entries: int = 0
    used_bytes: int = 0
    newest: float = float("-inf")
    pinned: int = 0
    temporaries: int = 0
    oldest_temporary: float = float("inf")
    foreign: int = 0
    foreign_bytes: int = 0
    complete: bool = True
    """False if it was stopped or something could not be read: then nothing follows from what was not seen."""


@dataclass(slots=True)
class Scanner:
    """Scans versions of one root.

    Attributes:
        device: Of the root; what lies on another one is foreign.
        linked: Inodes with several links that were counted already.
    """

    files: Files
    device: int
    ledger: Ledger
    stopping: Callable[[], bool]
    linked: set[int] = field(default_factory=set)

    def scan(self, version: int, managed: Histogram, example: Histogram) -> Tally:
        """Count the version whose directory is open; entries without a second link also in the histogram of theirs.

        Each name tells its layout, not the version's record: when an object changes its connector, its version stays.
        """
        tally = Tally()
        try:
            for shard in self._top(version, tally, example):
                self._shard(version, shard, tally, managed)
        except OSError as error:
            self._failed(tally, "scandir", error)
        return tally

    def count_once(self, status: os.stat_result) -> int:
        """Return the allocated bytes of a file with several links at its first sight, 0 later."""
        if status.st_ino in self.linked:
            return 0
        if len(self.linked) < _LINKED_LIMIT:
            self.linked.add(status.st_ino)
        return status.st_blocks * BLOCK

    def _top(self, version: int, tally: Tally, example: Histogram) -> list[str]:
        """Count what vLLM's connector wrote, and what is no directory; return the names of our shards, 256 at most."""
        shards = []
        with self.files.scandir(version) as entries:
            for chunk in self._chunks(entries, tally):
                found = []
                for entry in chunk:
                    if names.SHARD_PATTERN.fullmatch(entry.name):
                        shards.append(entry.name)
                    elif entry.is_dir(follow_symlinks=False):
                        found.append(f"{entry.name}/{names.EXAMPLE_ENTRY}")
                    else:
                        self._other(version, entry.name, tally)
                self._count(version, found, tally, example)
        return shards

    def _shard(self, version: int, shard: str, tally: Tally, managed: Histogram) -> None:
        try:
            with directory(self.files, shard, dir_fd=version) as fd, self.files.scandir(fd) as entries:
                for chunk in self._chunks(entries, tally):
                    self._entries(fd, chunk, tally, managed)
        except OSError as error:
            if is_elsewhere(error):
                tally.foreign += 1
            else:
                self._failed(tally, "open", error)

    def _entries(self, fd: int, chunk: list[Entry], tally: Tally, managed: Histogram) -> None:
        length, suffix = _ENTRY_LENGTH, names.ENTRY_SUFFIX
        # The form of the name costs a tenth of matching the pattern; what is evicted is matched in full.
        found = [entry.name for entry in chunk if len(entry.name) == length and entry.name.endswith(suffix)]
        if len(found) != len(chunk):
            known = set(found)
            for entry in chunk:
                if entry.name not in known:
                    self._other(fd, entry.name, tally)
        self._count(fd, found, tally, managed)

    def _chunks(self, entries: Iterator[Entry], tally: Tally) -> Iterator[list[Entry]]:
        while chunk := list(islice(entries, _CHUNK)):
            if self.stopping():
                tally.complete = False
                return
            yield chunk

    def _count(self, fd: int, paths: list[str], tally: Tally, histogram: Histogram) -> None:
        """The hot loop: everything it needs is local, and what is unusual is left to others."""
        look, device, log = self.files.stat, self.device, math.log
        counts, sizes, reference = histogram.counts, histogram.sizes, histogram.reference
        used, entries, newest = 0, 0, tally.newest
        for path in paths:
            try:
                status = look(path, dir_fd=fd, follow_symlinks=False)
            except OSError as error:
                self._missing(fd, path, tally, error)
                continue
            if status.st_nlink != 1 or status.st_mode & 0o170000 != stat.S_IFREG or status.st_dev != device:
                self._unusual(status, tally)
                continue
            stamp, size = status.st_mtime, status.st_blocks * BLOCK
            used += size
            entries += 1
            if stamp > newest:
                newest = stamp
            age = reference - stamp
            index = int(log(age + 1.0) * SCALE) if age > 0 else 0
            if index > LAST:
                index = LAST
            counts[index] += 1
            sizes[index] += size
        tally.used_bytes += used
        tally.entries += entries
        tally.newest = max(newest, tally.newest)

    def _unusual(self, status: os.stat_result, tally: Tally) -> None:
        if not stat.S_ISREG(status.st_mode) or status.st_dev != self.device:
            tally.foreign += 1
            tally.foreign_bytes += status.st_blocks * BLOCK if status.st_dev == self.device else 0
        elif status.st_nlink > 1:
            tally.entries += 1
            tally.pinned += 1
            tally.used_bytes += self.count_once(status)
            tally.newest = max(tally.newest, status.st_mtime)

    def _missing(self, fd: int, path: str, tally: Tally, error: OSError) -> None:
        name, slash, _ = path.partition("/")
        if error.errno != errno.ENOENT:
            self._failed(tally, "stat", error)
        elif slash:
            # vLLM makes a directory at each look-up. Its time tells of temporary files without opening it.
            try:
                status = self.files.stat(name, dir_fd=fd, follow_symlinks=False)
                tally.newest = max(tally.newest, status.st_mtime)
            except OSError as gone:
                self._failed(tally, "stat", gone)

    def _other(self, fd: int, name: str, tally: Tally) -> None:
        """Count what is no entry: a temporary file, or something that is not ours."""
        try:
            status = self.files.stat(name, dir_fd=fd, follow_symlinks=False)
        except OSError as error:
            self._failed(tally, "stat", error)
            return
        size = status.st_blocks * BLOCK if status.st_dev == self.device else 0
        if name.startswith(names.TEMPORARY_PREFIX) and stat.S_ISREG(status.st_mode):
            tally.temporaries += 1
            tally.used_bytes += size
            tally.newest = max(tally.newest, status.st_mtime)
            tally.oldest_temporary = min(tally.oldest_temporary, status.st_mtime)
        else:
            tally.foreign += 1
            tally.foreign_bytes += size

    def _failed(self, tally: Tally, call: str, error: OSError) -> None:
        """What vanished meanwhile is no loss; what cannot be read makes the count incomplete."""
        if error.errno != errno.ENOENT:
            tally.complete = False
            self.ledger.error(call, error)
