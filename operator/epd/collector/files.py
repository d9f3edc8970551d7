"""The file system as the collector sees it: `os`'s functions, and directories opened so that nothing leads elsewhere.

Every call names one component below a directory that is already open, or an open file: no path can be swapped under it.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TOUCHED: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""To set a file's time; not to wait for the reader of a pipe."""
_OPENAT2: Final = 437
"""Number of openat2(2) on every architecture but alpha (Linux 5.6)."""
_RESOLVE: Final = 0x01 | 0x02 | 0x04 | 0x08
"""NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, BENEATH (linux/openat2.h)."""
_WITHOUT: Final = frozenset({errno.ENOSYS, errno.EPERM, errno.E2BIG, errno.EINVAL})
"""How old kernels and seccomp profiles answer openat2."""
_AGAIN: Final = frozenset({errno.EAGAIN, errno.EINTR})
_NO_CHILD: Final = frozenset({"", ".", ".."})
_FIXED_MODES: Final = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP})
"""How volumes whose modes are mount options (SMB, some FUSE) answer fchmod(2)."""
_ATTEMPTS: Final = 8
"""openat2 answers EAGAIN when something is renamed meanwhile; a rename that goes on for 8 calls is an attack."""


class Entry(Protocol):
    """What `os.scandir` yields."""

    @property
    def name(self) -> str:
        """Name in the directory."""

    def is_dir(self, *, follow_symlinks: bool = ...) -> bool:
        """As os.DirEntry.is_dir; without a system call where the file system tells types in its directories."""

    def is_file(self, *, follow_symlinks: bool = ...) -> bool:
        """As os.DirEntry.is_file, at the same cost."""


class Files(Protocol):
    """The functions of `os` that the collector calls, with `os`'s signatures and errors, and `open_directory`."""

    def open(self, path: str, flags: int, mode: int = ..., *, dir_fd: int | None = ...) -> int:
        """As os.open."""

    def close(self, fd: int, /) -> None:
        """As os.close."""

    def read(self, fd: int, length: int, /) -> bytes:
        """As os.read."""

    def write(self, fd: int, data: bytes, /) -> int:
        """As os.write."""

    def fstat(self, fd: int) -> os.stat_result:
        """As os.fstat."""

    def stat(self, path: str, *, dir_fd: int | None = ..., follow_symlinks: bool = ...) -> os.stat_result:
        """As os.stat."""

    def mkdir(self, path: str, mode: int = ..., *, dir_fd: int | None = ...) -> None:
        """As os.mkdir."""

    def rmdir(self, path: str, *, dir_fd: int | None = ...) -> None:
        """As os.rmdir."""

    def unlink(self, path: str, *, dir_fd: int | None = ...) -> None:
        """As os.unlink."""

    def link(
        self,
        src: str,
        dst: str,
        *,
        src_dir_fd: int | None = ...,
        dst_dir_fd: int | None = ...,
        follow_symlinks: bool = ...,
    ) -> None:
        """As os.link."""

    def rename(self, src: str, dst: str, *, src_dir_fd: int | None = ..., dst_dir_fd: int | None = ...) -> None:
        """As os.rename."""

    def utime(self, path: str, times: None = ..., *, dir_fd: int, follow_symlinks: bool = ...) -> None:
        """As os.utime; None is the time of whoever keeps the file system: the server's on NFS."""

    def fsync(self, fd: int) -> None:
        """As os.fsync."""

    def fchmod(self, fd: int, mode: int) -> None:
        """As os.fchmod."""

    def scandir(self, path: int, /) -> AbstractContextManager[Iterator[Entry]]:
        """As os.scandir of an open directory."""

    def fstatvfs(self, fd: int, /) -> os.statvfs_result:
        """As os.fstatvfs."""

    def open_directory(self, name: str, *, dir_fd: int) -> int:
        """Open a directory that is a plain child, on the same mount, of an open one. Raises OSError."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_HOW_SIZE: Final = ctypes.c_size_t(ctypes.sizeof(_OpenHow))


class KernelFiles:
    """The real file system. `openat2=False` takes the way of kernels without it."""

    open = staticmethod(os.open)
    close = staticmethod(os.close)
    read = staticmethod(os.read)
    write = staticmethod(os.write)
    fstat = staticmethod(os.fstat)
    stat = staticmethod(os.stat)
    mkdir = staticmethod(os.mkdir)
    rmdir = staticmethod(os.rmdir)
    unlink = staticmethod(os.unlink)
    link = staticmethod(os.link)
    rename = staticmethod(os.rename)
    fsync = staticmethod(os.fsync)
    fchmod = staticmethod(os.fchmod)
    fstatvfs = staticmethod(os.fstatvfs)

    def __init__(self, *, openat2: bool = True) -> None:
        self._openat2 = openat2
        self._syscall: Any = ctypes.CDLL(None, use_errno=True).syscall
        self._how = {flags: _OpenHow(flags=flags, mode=0, resolve=_RESOLVE) for flags in (DIRECTORY, _TOUCHED)}
        self._reference = {flags: ctypes.byref(how) for flags, how in self._how.items()}

    def scandir(self, path: int, /) -> AbstractContextManager[Iterator[Entry]]:
        """As os.scandir of an open directory."""
        return os.scandir(path)

    def utime(self, path: str, times: None = None, *, dir_fd: int, follow_symlinks: bool = False) -> None:
        """As os.utime of a plain child; the system call itself would go through what is mounted on the name.

        Raises:
            OSError: As open_directory, and ENXIO for a pipe or a socket.
        """
        if follow_symlinks:
            raise OSError(errno.ELOOP, "symbolic links are never followed", path)
        fd = self._open_child(path, _TOUCHED, dir_fd)
        try:
            os.utime(fd, times)
        finally:
            os.close(fd)

    def open_directory(self, name: str, *, dir_fd: int) -> int:
        """Open a directory that is a plain child, on the same mount, of an open one.

        Raises:
            OSError: ENOENT, ENOTDIR, ELOOP for a symbolic link, EXDEV for another mount or a name with a path in it.
        """
        return self._open_child(name, DIRECTORY, dir_fd)

    def _open_child(self, name: str, flags: int, dir_fd: int) -> int:
        if "/" in name or name in _NO_CHILD:
            raise OSError(errno.EXDEV, "not the name of a child", name)
        attempts = 0
        while self._openat2:
            fd: int = self._syscall(_OPENAT2, dir_fd, os.fsencode(name), self._reference[flags], _HOW_SIZE)
            if fd >= 0:
                return fd
            number = ctypes.get_errno()
            attempts += 1
            if number in _AGAIN and attempts < _ATTEMPTS:
                continue
            if number not in _WITHOUT:
                raise OSError(number, os.strerror(number), name)
            self._openat2 = False
        return _open_and_compare(name, flags, dir_fd)


def _open_and_compare(name: str, flags: int, dir_fd: int) -> int:
    fd = os.open(name, flags, dir_fd=dir_fd)
    try:
        if os.fstat(fd).st_dev != os.fstat(dir_fd).st_dev or _mount_of(fd) != _mount_of(dir_fd):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _mount_of(fd: int) -> str:
    """Return the id of the mount that a file was opened through; a bind mount has the device of its source."""
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as lines:
        return next((line for line in lines if line.startswith("mnt_id:")), "")


class _Held(AbstractContextManager[int]):
    """A descriptor that is closed at the end. A generator would cost twice the system calls of opening and closing."""

    __slots__ = ("_fd", "_files")

    def __init__(self, files: Files, fd: int) -> None:
        self._files = files
        self._fd = fd

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_: object) -> None:
        close(self._files, self._fd)


def close(files: Files, fd: int) -> None:
    """Close a directory. What close(2) says then is of no use: nothing was written, and the descriptor is gone."""
    try:  # noqa: SIM105 (suppress costs more than the call does)
        files.close(fd)
    except OSError:
        pass


def directory(files: Files, name: str, *, dir_fd: int) -> AbstractContextManager[int]:
    """Open a child directory, to be held by a `with` statement. Raises OSError."""
    return _Held(files, files.open_directory(name, dir_fd=dir_fd))


def set_mode(files: Files, fd: int, mode: int) -> None:
    """Set the mode of what was just made, unless the volume decides modes by itself. Raises OSError."""
    try:
        files.fchmod(fd, mode)
    except OSError as error:
        if error.errno not in _FIXED_MODES:
            raise
