"""Bulk deletion of versions that were renamed away: by descriptor, at a given pace, resumable at any point.

Deletes only names that a connector writes. What else lies in the trash stays there and is counted.

No file is looked at before it goes. Its directory was opened on this mount, past no symbolic link, and unlink(2) acts
on names of that very directory: it follows no link, and refuses directories (EISDIR) and mount points (EBUSY).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

from epd.collector.files import Entry, Files, close
from epd.collector.ledger import Ledger
from epd.collector.pace import BATCH, Pace
from epd.collector.result import Cause, Spared
from epd.collector.scan import BLOCK, is_elsewhere
from epd.connector import layout as names

_DEPTH: Final = 8
"""Of directories in a version: two are ours; an identifier with slashes makes more of them with vLLM's connector."""
_NOT_YET: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY, errno.ENOENT})
"""How rmdir says that something is left, or that another collector was faster."""
_IN_THE_WAY: Final = frozenset({errno.EISDIR, errno.EBUSY})
"""How unlink refuses a directory, or a mount, that was put in the place of a file."""
_EXACT: Final = 64
"""Files whose size is looked at in any case: versions of no more are told exactly."""
_SPARSE: Final = 32
"""From each so many one is looked at: of 100,000 files 3125, whose mean is some 1 % off where sizes vary by half."""
_EXAMPLE: Final = (names.EXAMPLE_ENTRY,)
_SUFFIX: Final = f"{names.ENTRY_SUFFIX}/".encode()
_DIGITS: Final = bytes.maketrans(b"0123456789abcdef", b"0" * 16)
_ENTRY: Final = b"0" * 64 + b"\0"


def version_of(name: str) -> str | None:
    """Return the version of a name in the trash; None for what no collector put there."""
    version, dot, nonce = name.partition(".")
    return version if dot and nonce and names.is_version(version) else None


def is_ours(name: str, *, in_shard: bool) -> bool:
    """Tell whether a connector writes files of this name."""
    if name.startswith(names.TEMPORARY_PREFIX) or name == names.EXAMPLE_ENTRY:
        return True
    return in_shard and names.ENTRY_PATTERN.fullmatch(name) is not None


def are_entries(found: Sequence[str]) -> bool:
    """Tell whether all are names of entries, at a third of what matching each costs: no name has a slash or a NUL."""
    joined = os.fsencode(f"{'/'.join(found)}/")
    return joined.replace(_SUFFIX, b"\0").translate(_DIGITS) == _ENTRY * len(found)


@dataclass(slots=True)
class Purge:
    """Empties trash, in the slice of time that `pace` gives.

    What it frees is told by a sample: the mean of the files that were looked at, times the files that went. A file with
    a second link, which a reader pins, frees nothing yet; it is told when the pin goes.
    """

    files: Files
    ledger: Ledger
    pace: Pace
    left: int = 0
    """Deletions that the pace allows before it is asked again."""
    removed: int = 0
    """Of the directory at hand: told to the ledger once, since a counter by name costs as much as a system call."""
    looked: int = 0
    blocks: int = 0
    """Of those that were looked at, as far as they free something."""

    def purge(self, name: str, *, dir_fd: int) -> bool:
        """Delete one directory of the trash; True if it is gone, False if the slice is spent or something stays."""
        self.removed = self.looked = self.blocks = 0
        try:
            return self._remove_directory(name, dir_fd, _DEPTH)
        finally:
            self.ledger.removed[Cause.DEAD_VERSION] += self.removed
            if self.looked:
                self.ledger.freed[Cause.DEAD_VERSION] += self.blocks * BLOCK * self.removed // self.looked

    def _remove_directory(self, name: str, dir_fd: int, depth: int) -> bool:
        """Delete a directory as far as it is ours; True if it is gone."""
        try:
            fd = self.files.open_directory(name, dir_fd=dir_fd)
        except OSError as error:
            return self._not_opened(error)
        try:  # a context manager would cost as much as the unlink around the system call
            if names.SHARD_PATTERN.fullmatch(name):
                return self._empty(fd, depth, in_shard=True) and self._rmdir(name, dir_fd)
            # vLLM's connector keeps one file of a known name in each directory: no listing, if that was all.
            self._unlink(_EXAMPLE, fd)
            return self._rmdir(name, dir_fd) or (self._empty(fd, depth, in_shard=False) and self._rmdir(name, dir_fd))
        except OSError as error:
            self.ledger.error("scandir", error)
            return False
        finally:
            close(self.files, fd)

    def _not_opened(self, error: OSError) -> bool:
        """Count a directory that cannot be emptied, unless another collector was faster: then it is gone."""
        if is_elsewhere(error):
            self.ledger.spared[Spared.FOREIGN] += 1
        elif error.errno != errno.ENOENT:
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

    def _empty(self, fd: int, depth: int, *, in_shard: bool) -> bool:
        """Empty an open directory as far as it is ours; False if the slice was spent before the end."""
        with self.files.scandir(fd) as entries:
            while chunk := list(islice(entries, BATCH)):
                if not self._goes_on():
                    return False
                found = self._ours(chunk, in_shard)
                self._unlink(found, fd)
                if len(found) != len(chunk) and not self._others(chunk, set(found), fd, depth):
                    return False
        return True

    def _goes_on(self) -> bool:
        """Wait for the pace, if its last batch is used up; False if the slice is spent."""
        while self.left <= 0:
            if not self.pace.take(BATCH):
                return False
            self.left += BATCH
        return not self.pace.over

    def _ours(self, chunk: list[Entry], in_shard: bool) -> list[str]:
        """Return the names of files that a connector wrote."""
        try:
            files = [entry.name for entry in chunk if entry.is_file(follow_symlinks=False)]
        except OSError:  # where a directory tells no types, each file is looked at after all
            files = [entry.name for entry in chunk if _is_file(entry)]
        if in_shard and are_entries(files):
            return files
        return [name for name in files if is_ours(name, in_shard=in_shard)]

    def _others(self, chunk: list[Entry], known: Set[str], fd: int, depth: int) -> bool:
        """Delete directories, and keep what no connector writes; False if the slice was spent."""
        for entry in chunk:
            if entry.name in known:
                continue
            try:
                goes = depth > 0 and entry.is_dir(follow_symlinks=False)
            except OSError as error:
                self.ledger.error("stat", error)
                continue
            if not goes:
                self.ledger.spared[Spared.FOREIGN] += 1
            elif not self._remove_directory(entry.name, fd, depth - 1) and self.pace.over:
                return False
        return True

    def _unlink(self, found: Sequence[str], fd: int) -> None:
        """Unlink files. The hot loop: everything is local."""
        many = len(found)
        self.left -= many
        due = max(_EXACT, (self.removed + many) // _SPARSE) - self.looked
        if due > 0:
            self._look(found[:due], fd)
        unlink = self.files.unlink
        for name in found:
            try:
                unlink(name, dir_fd=fd)
            except OSError as error:
                many -= 1
                if error.errno in _IN_THE_WAY:
                    self.ledger.spared[Spared.FOREIGN] += 1
                elif error.errno != errno.ENOENT:
                    self.ledger.error("unlink", error)
        self.removed += many

    def _look(self, found: Sequence[str], fd: int) -> None:
        """Add files to the sample. What cannot be looked at is told if it cannot be unlinked either."""
        for name in found:
            with suppress(OSError):
                status = self.files.stat(name, dir_fd=fd, follow_symlinks=False)
                self.looked += 1
                if status.st_nlink == 1:
                    self.blocks += status.st_blocks


def _is_file(entry: Entry) -> bool:
    """Tell whether an entry is a plain file; False if that cannot be told."""
    try:
        return entry.is_file(follow_symlinks=False)
    except OSError:
        return False
