"""Copies of entries in the pod's own shared memory, within a hard budget. Touches nothing outside its directory.

`<root>/epd-ec-<nonce>/<n>`: one file per copy, which workers of the same pod map by its path. The directory is locked
with flock(2) while its process lives; the next start removes directories whose lock is free.

Memory of released copies is used again: fresh pages of tmpfs cost three times what filling them costs. No path is used
twice, so whoever comes too late with an old one finds no file instead of another tensor.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from .entry import Shape

PREFIX: Final = "epd-ec-"
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - a directory of our own is made below it

_ATTEMPTS: Final = 10
"""To make a directory before a sweeper takes it: more often than this in a row is a file system without locks."""
_IDLE_SHARE: Final = 4
"""A quarter of the budget is kept for reuse at most: copies live for some steps, so few are held at a time."""
_SLACK: Final = 2
"""A copy takes idle memory of up to twice its size; more would fill the budget with nothing."""
_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700
"""Engine and workers are one user; nobody else in the pod reads embeddings."""


def _nonce() -> str:
    return secrets.token_hex(8)


def room(root: str = SHARED_MEMORY) -> int:
    """Return the bytes of shared memory that are free. Raises OSError."""
    volume = os.statvfs(root)
    return volume.f_bavail * volume.f_frsize


class BudgetFull(Exception):  # noqa: N818 - an ordinary outcome: the entry is not copied
    """No room for a copy: within the budget, or in the shared memory itself."""


@dataclass(frozen=True, eq=False, slots=True)
class Copy:
    """Room for one tensor in shared memory: a file for others to map, and its writable bytes, `nbytes` long."""

    path: str
    buffer: memoryview
    nbytes: int


@dataclass(frozen=True, eq=False, slots=True)
class _Segment:
    """A file and its mapping, whole pages long."""

    path: str
    mapping: mmap.mmap
    size: int


class LocalCopies:
    """The copies of one process; with what is kept for reuse, at most `budget_bytes` of shared memory. Thread-safe."""

    def __init__(self, root: str = SHARED_MEMORY, *, budget_bytes: int, nonce: Callable[[], str] = _nonce) -> None:
        """Remove what dead processes left below `root`, and make a directory. Raises OSError."""
        self._budget = budget_bytes
        self._count = 0
        self._held: dict[str, _Segment] = {}
        self._idle: list[_Segment] = []
        self._reserved = 0
        self._lock = threading.Lock()
        _sweep(root)
        self._directory, self._fd = _locked_directory(root, nonce)

    @property
    def used_bytes(self) -> int:
        """Bytes of shared memory that hold copies."""
        with self._lock:
            return sum(segment.size for segment in self._held.values())

    @property
    def reserved_bytes(self) -> int:
        """Bytes of shared memory in use, kept ones included; never more than the budget."""
        with self._lock:
            return self._reserved

    def allocate(self, shape: Shape) -> Copy:
        """Return room for a tensor. Raises BudgetFull."""
        size = -(-shape.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        with self._lock:
            if self._fd < 0:
                raise BudgetFull("closed")
            self._count += 1
            path = f"{self._directory}/{self._count}"
            segment = self._reused(path, size) or self._made(path, size)
            self._held[path] = segment
        return Copy(path, memoryview(segment.mapping)[: shape.nbytes], shape.nbytes)

    def release(self, copy: Copy) -> None:
        """Free a copy, once, after the last worker has read it: another copy may take its memory at once.

        A buffer that somebody still uses, such as a thread that hangs in reading into it, is not used again.
        """
        with self._lock:
            segment = self._held.pop(copy.path, None)
            if segment is None:
                return
            if _unused(copy, segment) and self._fd >= 0:
                self._idle.append(segment)
                kept = sum(idle.size for idle in self._idle)
                while kept > self._budget // _IDLE_SHARE:
                    kept -= self._drop_idle()
            else:
                self._drop(segment)

    def close(self) -> None:
        """Remove all files and the directory. Never raises; may be repeated. Buffers in use stay valid."""
        with self._lock:
            if self._fd < 0:
                return
            for segment in (*self._held.values(), *self._idle):
                self._drop(segment)
            self._held.clear()
            self._idle.clear()
            with suppress(OSError):
                os.rmdir(self._directory)
            os.close(self._fd)
            self._fd = -1

    def _reused(self, path: str, size: int) -> _Segment | None:
        """The smallest idle segment that fits, under its new name."""
        fitting = [idle for idle in self._idle if size <= idle.size <= _SLACK * size]
        if not fitting:
            return None
        segment = min(fitting, key=lambda idle: idle.size)
        self._idle.remove(segment)
        try:
            os.rename(segment.path, path)
        except OSError:
            self._drop(segment)
            return None
        return _Segment(path, segment.mapping, segment.size)

    def _made(self, path: str, size: int) -> _Segment:
        """A new segment; idle ones make room for it."""
        while self._reserved + size > self._budget:
            if not self._idle:
                raise BudgetFull(f"{self._reserved} of {self._budget} bytes are in use, {size} more are needed")
            self._drop_idle()
        while True:
            try:
                mapping = _mapped(path, size)
            except OSError as error:  # the shared memory may be smaller than the budget
                if not self._idle:
                    raise BudgetFull(str(error)) from error
                self._drop_idle()
            else:
                self._reserved += size
                return _Segment(path, mapping, size)

    def _drop_idle(self) -> int:
        """Free the segment that is idle for longest, and return its size."""
        segment = self._idle.pop(0)
        self._drop(segment)
        return segment.size

    def _drop(self, segment: _Segment) -> None:
        self._reserved -= segment.size
        with suppress(OSError):
            os.unlink(segment.path)
        with suppress(BufferError):  # then the last user of the buffer unmaps it
            segment.mapping.close()


def _unused(copy: Copy, segment: _Segment) -> bool:
    """Take the buffer away from its holder, and tell whether nothing else refers to the mapping."""
    try:
        copy.buffer.release()
        segment.mapping.resize(segment.size)  # changes nothing; refused while any slice of the buffer lives
    except (BufferError, OSError):
        return False
    return True


def _mapped(path: str, size: int) -> mmap.mmap:
    """Make a file with its memory reserved: writing to a mapping of memory that is not there would be SIGBUS."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
    try:
        os.posix_fallocate(fd, 0, size)
        return mmap.mmap(fd, size)
    except OSError:
        with suppress(OSError):
            os.unlink(path)
        raise
    finally:
        os.close(fd)


def _locked_directory(root: str, nonce: Callable[[], str]) -> tuple[str, int]:
    """Make a directory and lock it. A sweeper may remove it between the two: then make another. Raises OSError."""
    for _ in range(_ATTEMPTS):
        path = f"{root}/{PREFIX}{nonce()}"
        os.mkdir(path, _DIRECTORY_MODE)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        if _lock(fd) and os.fstat(fd).st_nlink:
            return path, fd
        os.close(fd)
        with suppress(OSError):
            os.rmdir(path)
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK), root)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _sweep(root: str) -> None:
    """Remove the directories of processes that are gone. What cannot be removed belongs to somebody else."""
    for name in os.listdir(root):
        if name.startswith(PREFIX):
            with suppress(OSError):
                _remove_if_dead(f"{root}/{name}")


def _remove_if_dead(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if _lock(fd):
            for name in os.listdir(fd):
                os.unlink(name, dir_fd=fd)
            os.rmdir(path)
    finally:
        os.close(fd)
