"""Copies of entries in the pod's own shared memory, within a hard budget. Touches nothing outside its directory.

`<root>/epd-ec-<nonce>/<n>`: one file per copy, which workers of the same pod map by its path. The directory is locked
with flock(2) while its process lives; the next start removes directories whose lock is free.
"""

from __future__ import annotations

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


def _nonce() -> str:
    return secrets.token_hex(8)


class BudgetFull(Exception):  # noqa: N818 - an ordinary outcome
    """No room for a copy: within the budget, or in the shared memory itself."""


@dataclass(frozen=True, eq=False, slots=True)
class Copy:
    """A file in shared memory with room for one tensor; `buffer` is writable and `nbytes` long."""

    path: str
    buffer: memoryview
    nbytes: int


class LocalCopies:
    """The copies of one process, at most `budget_bytes` of shared memory together. Thread-safe."""

    def __init__(self, root: str = SHARED_MEMORY, *, budget_bytes: int, nonce: Callable[[], str] = _nonce) -> None:
        """Remove what dead processes left below `root`, and make a directory. Raises OSError."""
        self._budget = budget_bytes
        self._used = 0
        self._count = 0
        self._lock = threading.Lock()
        self._held: dict[str, Copy] = {}
        _sweep(root)
        self._directory, self._fd = _locked_directory(root, nonce)

    @property
    def used_bytes(self) -> int:
        """Bytes of shared memory in use."""
        with self._lock:
            return self._used

    def allocate(self, shape: Shape) -> Copy:
        """Return room for a tensor. Raises BudgetFull."""
        size = -(-shape.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        with self._lock:
            if self._used + size > self._budget:
                raise BudgetFull(f"{self._used} of {self._budget} bytes are in use, {size} more are needed")
            self._used += size
            self._count += 1
            path = f"{self._directory}/{self._count}"
        try:
            copy = Copy(path, _mapped(path, shape.nbytes), shape.nbytes)
        except OSError as error:
            with self._lock:
                self._used -= size
            raise BudgetFull(str(error)) from error
        with self._lock:
            self._held[path] = copy
        return copy

    def release(self, copy: Copy) -> None:
        """Free a copy. A worker that still maps it keeps its bytes readable, and in memory, until it unmaps them."""
        with self._lock:
            if self._held.pop(copy.path, None) is None:
                return
            self._used -= -(-copy.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        with suppress(OSError):
            os.unlink(copy.path)

    def close(self) -> None:
        """Free all copies and the directory. Never raises; may be repeated."""
        with self._lock:
            held = list(self._held.values())
            fd, self._fd = self._fd, -1
        for copy in held:
            self.release(copy)
        if fd >= 0:
            with suppress(OSError):
                os.rmdir(self._directory)
            os.close(fd)


def attach(path: str, nbytes: int) -> memoryview:
    """Map a copy read-only, in any process of the pod. Raises OSError, ValueError if it is shorter than `nbytes`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return memoryview(mmap.mmap(fd, nbytes, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ))
    finally:
        os.close(fd)


def _mapped(path: str, nbytes: int) -> memoryview:
    """Make a file with its memory reserved: writing to a mapping of memory that is not there would be SIGBUS."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, nbytes)
        return memoryview(mmap.mmap(fd, nbytes))
    except OSError:
        with suppress(OSError):
            os.unlink(path)
        raise
    finally:
        os.close(fd)


def _locked_directory(root: str, nonce: Callable[[], str]) -> tuple[str, int]:
    """Make a directory and lock it. A sweeper may remove it between the two: then make another."""
    while True:
        path = f"{root}/{PREFIX}{nonce()}"
        os.mkdir(path, 0o700)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        if _lock(fd) and os.fstat(fd).st_nlink:
            return path, fd
        os.close(fd)


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
