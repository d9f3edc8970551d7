"""Bulk deletion of versions that were renamed away: by descriptor, at a given pace, resumable at any point.

Deletes only names that a connector writes. What else lies in the trash stays there and is counted.
"""

from __future__ import annotations

import errno
import stat
from dataclasses import dataclass
from typing import Final

from epd.collector.files import Files, directory
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
        try:
            with directory(self.files, name, dir_fd=dir_fd) as fd:
                if not self._empty(fd, names.SHARD_PATTERN.fullmatch(name) is not None, depth):
                    return False
            self.files.rmdir(name, dir_fd=dir_fd)
        except OSError as error:
            if is_elsewhere(error):
                self.ledger.spared[Spared.FOREIGN] += 1
            elif error.errno not in _NOT_YET:
                self.ledger.error("rmdir", error)
            return error.errno == errno.ENOENT
        return True

    def _empty(self, fd: int, in_shard: bool, depth: int) -> bool:
        """Empty an open directory as far as it is ours; False if the slice was spent before the end."""
        with self.files.scandir(fd) as entries:
            for entry in entries:
                if self.left <= 0:
                    if not self.pace.take(BATCH):
                        return False
                    self.left = BATCH
                if not self._remove(entry.name, fd, in_shard, depth):
                    return False
        return True

    def _remove(self, name: str, fd: int, in_shard: bool, depth: int) -> bool:
        try:
            status = self.files.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode) and status.st_dev == self.device and depth > 0:
                return self._remove_directory(name, fd, depth - 1) or not self.pace.over
            if not stat.S_ISREG(status.st_mode) or not is_ours(name, in_shard=in_shard):
                self.ledger.spared[Spared.FOREIGN] += 1
                return True
            self.files.unlink(name, dir_fd=fd)
        except FileNotFoundError:
            return True
        except OSError as error:
            self.ledger.error("unlink", error)
            return True
        self.left -= 1
        self.removed += 1
        self.freed += status.st_blocks * BLOCK if status.st_nlink == 1 else 0
        return True
