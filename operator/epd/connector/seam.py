"""The file system as the store sees it: `os`'s functions, and what their errors mean to a cache. Touches no file.

Tests pass another object with the same functions: a file system in memory, or one that fails where they say.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import stat_result
from typing import Final, Protocol

from .entry import Reason, Rejected


class Files(Protocol):
    """The functions of `os` that the store calls; signatures and errors are `os`'s."""

    def open(self, path: str, flags: int, mode: int = ..., /) -> int:
        """As os.open."""

    def close(self, fd: int, /) -> None:
        """As os.close."""

    def preadv(self, fd: int, buffers: Sequence[memoryview], offset: int, /) -> int:
        """As os.preadv: reads into the caller's buffers, so that no copy is made under the GIL."""

    def read(self, fd: int, length: int, /) -> bytes:
        """As os.read."""

    def write(self, fd: int, data: bytes | memoryview, /) -> int:
        """As os.write."""

    def pwrite(self, fd: int, data: memoryview, offset: int, /) -> int:
        """As os.pwrite."""

    def fstat(self, fd: int, /) -> stat_result:
        """As os.fstat."""

    def stat(self, path: str, *, follow_symlinks: bool = ...) -> stat_result:
        """As os.stat."""

    def mkdir(self, path: str, mode: int = ..., /) -> None:
        """As os.mkdir."""

    def rmdir(self, path: str, /) -> None:
        """As os.rmdir."""

    def unlink(self, path: str, /) -> None:
        """As os.unlink."""

    def link(self, source: str, target: str, /) -> None:
        """As os.link."""

    def rename(self, source: str, target: str, /) -> None:
        """As os.rename."""

    def utime(self, path: str, times: None = ..., *, follow_symlinks: bool = ...) -> None:
        """As os.utime; None is the time of whoever keeps the file system: the server's on NFS."""

    def fsync(self, fd: int, /) -> None:
        """As os.fsync."""

    def fchmod(self, fd: int, mode: int, /) -> None:
        """As os.fchmod."""


_REASONS: Final = {
    errno.ENOENT: Reason.ABSENT,
    errno.ENOTDIR: Reason.NOT_REGULAR,
    errno.EISDIR: Reason.NOT_REGULAR,
    errno.ELOOP: Reason.NOT_REGULAR,
    errno.ENXIO: Reason.NOT_REGULAR,  # a socket, or a device that is gone
    errno.ENOTEMPTY: Reason.NOT_REGULAR,  # a directory in the place of an entry, as rename sees it
    errno.EACCES: Reason.UNREADABLE,
    errno.EPERM: Reason.UNREADABLE,
    errno.ESTALE: Reason.STALE,
    errno.ENOSPC: Reason.FULL,
    errno.EDQUOT: Reason.FULL,
    errno.EFBIG: Reason.TOO_LARGE,
    errno.EROFS: Reason.READ_ONLY,
}


class StoreError(Exception):
    """What could not be written or linked, and why. `errno` is None if no call failed."""

    def __init__(self, reason: Reason, number: int | None = None, detail: str = "") -> None:
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)
        self.reason: Final = reason
        self.errno: Final = number


def reason_of(error: OSError) -> Reason:
    """Return what an error of the file system means for an entry."""
    return _REASONS.get(error.errno or 0, Reason.IO)


def rejected(error: OSError) -> Rejected:
    """Return what an error of the file system is to whoever reads: a miss."""
    return Rejected(reason_of(error), str(error))


@contextmanager
def failing() -> Iterator[None]:
    """Turn errors of the file system, and refusals of what to write, into StoreError: for whoever writes."""
    try:
        yield
    except OSError as error:
        raise StoreError(reason_of(error), error.errno, str(error)) from error
    except Rejected as refusal:
        raise StoreError(refusal.reason, detail=str(refusal)) from refusal
