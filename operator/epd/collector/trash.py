"""Bulk deletion of versions that were renamed away: by descriptor, at a given pace, resumable at any point.

Deletes only names that a connector writes. What else lies in the trash stays there and is counted.
"""

from __future__ import annotations

import errno
import stat
from dataclasses import dataclass
from itertools import islice
from typing import Final

from epd.collector.files import Entry, Files, directory
from epd.collector.ledger import Ledger
from epd.collector.pace import BATCH, Pace
from epd.collector.result import Cause, Spared
from epd.collector.scan import BLOCK, is_elsewhere
from epd.connector import layout as names

_DEPTH: Final = 8
"""Of directories in a version: two are ours; an identifier with slashes makes more of them with vLLM's connector."""
_NOT_YET: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY, errno.ENOENT})
"""How rmdir says that something is left, or that another collector was faster."""


def version_of(name: str) -> str | None:
    """Return the version of a name in the trash; None for what no collector put there."""
    version, dot, nonce = name.partition(".")
    return version if dot and nonce and names.is_version(version) else None


def is_ours(name: str, *, in_shard: bool) -> bool:
    """Tell whether a connector writes files of this name."""
    if name.startswith(names.TEMPORARY_PREFIX) or name == names.EXAMPLE_ENTRY:
        return True
    return in_shard and names.ENTRY_PATTERN.fullmatch(name) is not None


@dataclass(slots=True)
class Purge:
    """Empties trash, in the slice of time that `pace` gives."""

    files: Files
    device: int
    ledger: Ledger
    pace: Pace
    left: int = 0
    """Deletions that the pace allows before it is asked again."""
    removed: int = 0
    freed: int = 0
    """Of the directory at hand: told to the ledger once, since a counter by name costs as much as a system call."""

    def purge(self, name: str, *, dir_fd: int) -> bool:
        """Delete one directory of the trash; True if it is gone, False if the slice is spent or something stays."""
        try:
            return self._remove_directory(name, dir_fd, _DEPTH)
        finally:
            self.ledger.removed[Cause.DEAD_VERSION] += self.removed
            self.ledger.freed[Cause.DEAD_VERSION] += self.freed
            self.removed = self.freed = 0

    def _remove_directory(self, name: str, dir_fd: int, depth: int) -> bool:
        """Delete a directory as far as it is ours; True if it is gone."""
        in_shard = names.SHARD_PATTERN.fullmatch(name) is not None
        try:
            with directory(self.files, name, dir_fd=dir_fd) as fd:
                # vLLM's connector keeps one file of a known name in each directory: no listing, if that was all.
                if not in_shard:
                    self._unlink([names.EXAMPLE_ENTRY], fd)
                    if self._rmdir(name, dir_fd):
                        return True
                if not self._empty(fd, in_shard, depth):
                    return False
            return self._rmdir(name, dir_fd)
        except OSError as error:
            if is_elsewhere(error):
                self.ledger.spared[Spared.FOREIGN] += 1
            elif error.errno not in _NOT_YET:
                self.ledger.error("open", error)
            return error.errno == errno.ENOENT

    def _rmdir(self, name: str, dir_fd: int) -> bool:
        """Remove a directory that may be empty; True if it is gone."""
        try:
            self.files.rmdir(name, dir_fd=dir_fd)
        except OSError as error:
            if error.errno not in _NOT_YET:
                self.ledger.error("rmdir", error)
            return error.errno == errno.ENOENT
        return True

    def _empty(self, fd: int, in_shard: bool, depth: int) -> bool:
        """Empty an open directory as far as it is ours; False if the slice was spent before the end."""
        with self.files.scandir(fd) as entries:
            while chunk := list(islice(entries, BATCH)):
                while self.left <= 0:
                    if not self.pace.take(BATCH):
                        return False
                    self.left += BATCH
                found = [entry.name for entry in chunk if is_ours(entry.name, in_shard=in_shard)]
                odd = self._unlink(found, fd)
                if odd or len(found) != len(chunk):
                    files = set(found).difference(odd)
                    if not all(self._other(entry, fd, depth) for entry in chunk if entry.name not in files):
                        return False
        return True

    def _other(self, entry: Entry, fd: int, depth: int) -> bool:
        """Delete a directory, or keep what no connector writes; False if the slice was spent."""
        if depth > 0 and entry.is_dir(follow_symlinks=False):
            return self._remove_directory(entry.name, fd, depth - 1) or not self.pace.over
        self.ledger.spared[Spared.FOREIGN] += 1
        return True

    def _unlink(self, found: list[str], fd: int) -> list[str]:
        """Unlink those that are files of this mount, and return the others. The hot loop: everything is local."""
        look, unlink, device = self.files.stat, self.files.unlink, self.device
        removed = freed = 0
        others = []
        for name in found:
            try:
                status = look(name, dir_fd=fd, follow_symlinks=False)
                if status.st_mode & 0o170000 != stat.S_IFREG or status.st_dev != device:
                    others.append(name)
                    continue
                unlink(name, dir_fd=fd)
            except FileNotFoundError:
                continue
            except OSError as error:
                self.ledger.error("unlink", error)
                continue
            removed += 1
            if status.st_nlink == 1:
                freed += status.st_blocks
        self.left -= removed
        self.removed += removed
        self.freed += freed * BLOCK
        return others
