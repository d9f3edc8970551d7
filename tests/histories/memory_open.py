"""Descriptors of the file system in memory: names are looked up and opened, and every call passes a gate."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Protocol

from histories.memory_tree import Inode, fail, walk

Target = str | int
ACCESS = os.O_RDONLY | os.O_WRONLY | os.O_RDWR


class Gate(Protocol):
    """Called before each call takes effect. May raise OSError (the call fails), let others run, or end the process."""

    def __call__(self, operation: str, target: object, inode: Inode | None) -> None: ...


class Witness(Protocol):
    """Told of each change and each look at an inode, at the moment that it takes effect."""

    def __call__(self, files: Opener, operation: str, parent: Inode | None, name: str, inode: Inode) -> None: ...


class Description:
    """An open file: what descriptors stand for."""

    __slots__ = ("flags", "inode", "offset", "scanning")

    def __init__(self, inode: Inode, flags: int) -> None:
        self.inode, self.flags, self.offset, self.scanning = inode, flags, 0, False
        inode.opens += 1


class Opener:
    """The descriptors of one process. `root` is its `/`."""

    O_RDONLY, O_WRONLY, O_RDWR = os.O_RDONLY, os.O_WRONLY, os.O_RDWR
    O_CREAT, O_EXCL, O_TRUNC, O_APPEND = os.O_CREAT, os.O_EXCL, os.O_TRUNC, os.O_APPEND
    O_DIRECTORY, O_NOFOLLOW, O_CLOEXEC, O_PATH = os.O_DIRECTORY, os.O_NOFOLLOW, os.O_CLOEXEC, os.O_PATH
    O_NONBLOCK, O_NOATIME = os.O_NONBLOCK, os.O_NOATIME

    def __init__(
        self, root: Inode, *, gate: Gate | None = None, witness: Witness | None = None, umask: int = 0o022
    ) -> None:
        self.root, self.gate, self.witness, self.umask = root, gate, witness, umask
        self._open: dict[int, Description] = {}

    # What the histories use

    def pass_gate(self, operation: str, target: object, inode: Inode | None = None) -> None:
        if self.gate is not None:
            self.gate(operation, target, inode)

    def inode_of(self, fd: int) -> Inode:
        return self._description(fd).inode

    def find(self, path: str) -> tuple[Inode, str, Inode | None]:
        """Look up a name without following it, as nobody of the history does."""
        return walk(self.root, path, follow=False, root=self.root)

    def tear(self, fd: int, data: bytes, offset: int | None) -> None:
        """Bring a part of a write to the disk, of a process that ends in it; None: where the descriptor stands."""
        description = self._description(fd)
        with contextlib.suppress(OSError):
            description.inode.volume.store(description.inode, description.offset if offset is None else offset, data)

    def die(self) -> None:
        """The process is gone: its descriptors close."""
        for description in list(self._open.values()):
            self.drop(description)
        self._open.clear()

    @property
    def open_descriptors(self) -> int:
        return len(self._open)

    def drop(self, description: Description) -> None:
        description.inode.opens -= 1
        description.inode.release()

    def mount(self, path: str, directory: Inode) -> None:
        """Mount a volume's root, or bind a directory, at `path`."""
        parent, _, point = walk(self.root, path, follow=True, root=self.root)
        assert point is not None
        assert point.is_directory
        point.mounted = directory
        if directory is directory.volume.root:
            directory.parent = parent

    def _tell(self, operation: str, parent: Inode | None, name: str, inode: Inode) -> None:
        if self.witness is not None:
            self.witness(self, operation, parent, name, inode)

    # Look-up

    def _description(self, fd: int) -> Description:
        try:
            return self._open[fd]
        except KeyError:
            raise fail(errno.EBADF) from None

    def _find(self, path: Target, dir_fd: int | None, *, follow: bool) -> tuple[Inode, str, Inode | None]:
        if isinstance(path, int):
            inode = self._description(path).inode
            return inode, "", inode
        path = os.fspath(path)
        if "\0" in path:
            raise ValueError("embedded null byte")
        start = self.root if dir_fd is None else self._description(dir_fd).inode
        if not start.is_directory and not path.startswith("/"):
            raise fail(errno.ENOTDIR, path)
        child = None if dir_fd is None or start.children is None else start.children.get(path)
        if child is not None and not (child.target and follow):  # as nearly always: the same answer, sooner
            return start, path, child.mounted or child
        return walk(start, path, follow=follow, root=self.root)

    def _existing(self, path: Target, dir_fd: int | None, *, follow: bool) -> tuple[Inode, str, Inode]:
        parent, name, inode = self._find(path, dir_fd, follow=follow)
        if inode is None:
            raise fail(errno.ENOENT, path)
        return parent, name, inode

    # Descriptors

    def open(self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        self.pass_gate("open", path)
        follow = not flags & os.O_NOFOLLOW and not (flags & os.O_CREAT and flags & os.O_EXCL)
        parent, name, inode = self._find(path, dir_fd, follow=follow)
        if inode is None:
            inode = self._create(path, parent, name, flags, mode)
        else:
            self._may_open(path, inode, flags)
            if flags & os.O_TRUNC:
                inode.volume.writable()
                inode.volume.truncate(inode, 0)
                self._tell("truncate", parent, name, inode)
        return self._number(Description(inode, flags))

    def _number(self, description: Description) -> int:
        fd = 3
        while fd in self._open:
            fd += 1
        self._open[fd] = description
        self._tell("look", None, "", description.inode)
        return fd

    def _create(self, path: str, parent: Inode, name: str, flags: int, mode: int) -> Inode:
        if not flags & os.O_CREAT:
            raise fail(errno.ENOENT, path)
        inode = parent.volume.create(parent, name, stat.S_IFREG | (mode & ~self.umask & 0o7777))
        self._tell("create", parent, name, inode)
        return inode

    def _may_open(self, path: str, inode: Inode, flags: int) -> None:
        if flags & os.O_CREAT and flags & os.O_EXCL:
            raise fail(errno.EEXIST, path)
        if flags & os.O_CREAT and inode.is_directory:
            raise fail(errno.EISDIR, path)
        if flags & os.O_DIRECTORY and not inode.is_directory:
            raise fail(errno.ENOTDIR, path)
        if inode.is_symlink and not flags & os.O_PATH:
            raise fail(errno.ELOOP, path)
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_TRUNC)
        if writes and inode.is_directory and not flags & os.O_PATH:
            raise fail(errno.EISDIR, path)
        if writes:
            inode.volume.writable()

    def open_directory(self, name: str, *, dir_fd: int) -> int:
        """openat2 with RESOLVE_BENEATH, NO_SYMLINKS and NO_XDEV, as the collector's real one does it."""
        self.pass_gate("open_directory", name)
        if "/" in name or name in ("", ".", ".."):
            raise fail(errno.EXDEV, name)
        parent = self._description(dir_fd).inode
        if not parent.is_directory:
            raise fail(errno.ENOTDIR, name)
        here = (parent.children or {}).get(name)
        if here is None:
            raise fail(errno.ENOENT, name)
        if here.is_symlink:
            raise fail(errno.ELOOP, name)
        if here.mounted is not None:
            raise fail(errno.EXDEV, name)
        if not here.is_directory:
            raise fail(errno.ENOTDIR, name)
        return self._number(Description(here, os.O_RDONLY | os.O_DIRECTORY))

    def close(self, fd: int) -> None:
        description = self._description(fd)
        if description.scanning:
            raise AssertionError("a directory is closed in the middle of its scan")
        try:
            self.pass_gate("close", fd)
        finally:  # an error of close(2) comes after the descriptor is gone
            if self._open.pop(fd, None) is not None:
                self.drop(description)

    def dup(self, fd: int) -> int:
        raise NotImplementedError("not part of the seam")
