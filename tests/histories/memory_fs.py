"""One file system in memory behind `os`'s functions: what collector and connector are given as `files` in histories.

Each process has its own `Files`: descriptors, a gate before every call (where histories switch between actors, crash,
pause and inject errors) and a witness that is told of every change. All see the same `memory_tree` of volumes.
`test_memory_fs.py` runs random calls against this and against the real `os` and compares every answer.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from histories.memory_tree import BLOCK, NAME_MAX, Inode, Volume, fail, is_below, walk

Target = str | int
_ACCESS = os.O_RDONLY | os.O_WRONLY | os.O_RDWR
_BATCH = 16
"""Names that one getdents call brings: small, so that histories have many calls in the middle of a directory."""


class Gate(Protocol):
    """Called before each call takes effect. May raise OSError (the call fails), let others run, or end the process."""

    def __call__(self, operation: str, target: object, inode: Inode | None) -> None: ...


class Witness(Protocol):
    """Told of each change and each look at an inode, at the moment that it takes effect."""

    def __call__(self, files: Files, operation: str, parent: Inode | None, name: str, inode: Inode) -> None: ...


class Description:
    """An open file: what descriptors stand for."""

    __slots__ = ("flags", "inode", "offset", "scanning")

    def __init__(self, inode: Inode, flags: int) -> None:
        self.inode, self.flags, self.offset, self.scanning = inode, flags, 0, False
        inode.opens += 1


class Stat:
    """`os.stat_result`, as far as it is used: the real one takes five times as long to make."""

    __slots__ = (
        "st_atime",
        "st_blocks",
        "st_ctime",
        "st_ctime_ns",
        "st_dev",
        "st_ino",
        "st_mode",
        "st_mtime",
        "st_mtime_ns",
        "st_nlink",
        "st_size",
    )  # fmt: skip

    def __init__(self, inode: Inode) -> None:
        self.st_mode = inode.mode
        self.st_ino = abs(inode.number)
        self.st_dev = inode.volume.device
        self.st_nlink = inode.nlink
        self.st_size = len(inode.data) or len(inode.target)
        self.st_blocks = len(inode.pages) * (BLOCK // 512)
        self.st_mtime_ns = inode.mtime
        self.st_mtime = inode.mtime / 1e9
        self.st_atime = inode.atime / 1e9
        self.st_ctime_ns = inode.ctime
        self.st_ctime = inode.ctime / 1e9


class Entry:
    """`os.DirEntry`."""

    __slots__ = ("_at", "_files", "_inode_number", "_kind", "name", "path")

    def __init__(self, files: Files, at: Target, name: str, inode: Inode) -> None:
        self._files, self._at, self.name = files, at, name
        self.path = name if isinstance(at, int) else f"{at.rstrip('/')}/{name}"
        self._kind = stat.S_IFMT(inode.mode) if inode.volume.types_known else 0
        self._inode_number = inode.number

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def inode(self) -> int:
        return self._inode_number

    def stat(self, *, follow_symlinks: bool = True) -> Stat:
        if isinstance(self._at, int):
            return self._files.stat(self.name, dir_fd=self._at, follow_symlinks=follow_symlinks)
        return self._files.stat(self.path, follow_symlinks=follow_symlinks)

    def _is(self, kind: int, follow_symlinks: bool) -> bool:
        if self._kind and not (follow_symlinks and self._kind == stat.S_IFLNK):
            return self._kind == kind
        try:
            return stat.S_IFMT(self.stat(follow_symlinks=follow_symlinks).st_mode) == kind
        except FileNotFoundError:
            return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(stat.S_IFDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(stat.S_IFREG, follow_symlinks)

    def is_symlink(self) -> bool:
        return self._is(stat.S_IFLNK, False)


class Scan:
    """`os.scandir`'s iterator: streams in the order of a hash, so what changes behind it stays unseen, as on ext4."""

    def __init__(self, files: Files, at: Target, description: Description, own: bool) -> None:
        self._files, self._at, self._description, self._own = files, at, description, own
        if description.scanning:
            raise AssertionError("two scans of one descriptor share their offset on Linux")
        description.scanning = True
        self._cursor = (-1, "")
        self._ready: list[Entry] = []
        self._closed = self._last = False

    def __enter__(self) -> Scan:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Entry]:
        return self

    def __next__(self) -> Entry:
        if not self._ready and not self._closed and not self._last:
            self._refill()
        if not self._ready:
            self.close()
            raise StopIteration
        return self._ready.pop()

    def _refill(self) -> None:
        inode = self._description.inode
        self._files.pass_gate("getdents", self._at, inode)
        volume, children = inode.volume, inode.children
        assert children is not None
        keys = [(zlib.crc32(name.encode("utf-8", "surrogateescape"), volume.spread), name) for name in children]
        batch = sorted(key for key in keys if key > self._cursor)[:_BATCH]
        self._last = len(batch) < _BATCH
        if batch:
            self._cursor = batch[-1]
        self._ready = [Entry(self._files, self._at, name, children[name]) for _, name in reversed(batch)]

    def close(self) -> None:
        if not self._closed:
            self._closed, self._description.scanning = True, False
            self._ready = []
            if self._own:
                self._files.drop(self._description)


def _times(value: float) -> int:
    return int(value * 10**9)


class Files:
    """`os`, for one process. `root` is its `/`."""

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

    # Data

    def _readable(self, fd: int) -> Description:
        description = self._description(fd)
        if description.flags & os.O_PATH or description.flags & _ACCESS == os.O_WRONLY:
            raise fail(errno.EBADF)
        if description.inode.is_directory:
            raise fail(errno.EISDIR)
        if description.inode.volume.stale_when_unlinked and description.inode.nlink == 0:
            raise fail(errno.ESTALE)
        return description

    def read(self, fd: int, length: int) -> bytes:
        self.pass_gate("read", fd)
        description = self._readable(fd)
        data = bytes(description.inode.data[description.offset : description.offset + length])
        description.offset += len(data)
        return data

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        self.pass_gate("pread", fd)
        return bytes(self._readable(fd).inode.data[offset : offset + length])

    def readv(self, fd: int, buffers: Sequence[Any]) -> int:
        self.pass_gate("readv", fd)
        description = self._readable(fd)
        total = _scatter(description.inode.data, description.offset, buffers)
        description.offset += total
        return total

    def preadv(self, fd: int, buffers: Sequence[Any], offset: int) -> int:
        self.pass_gate("preadv", fd)
        return _scatter(self._readable(fd).inode.data, offset, buffers)

    def _writable(self, fd: int) -> Description:
        description = self._description(fd)
        if description.flags & os.O_PATH or description.flags & _ACCESS == os.O_RDONLY:
            raise fail(errno.EBADF)
        description.inode.volume.writable()
        return description

    def write(self, fd: int, data: Any) -> int:
        self.pass_gate("write", (fd, data, None))
        description = self._writable(fd)
        if description.flags & os.O_APPEND and len(data):
            description.offset = len(description.inode.data)
        written = description.inode.volume.store(description.inode, description.offset, bytes(data))
        description.offset += written
        self._tell("write", None, "", description.inode)
        return written

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        self.pass_gate("pwrite", (fd, data, offset))
        description = self._writable(fd)
        if description.flags & os.O_APPEND:
            offset = len(description.inode.data)  # pwrite(2), under BUGS
        written = description.inode.volume.store(description.inode, offset, bytes(data))
        self._tell("write", None, "", description.inode)
        return written

    def ftruncate(self, fd: int, length: int) -> None:
        self.pass_gate("ftruncate", fd)
        description = self._description(fd)
        if description.flags & _ACCESS == os.O_RDONLY:
            raise fail(errno.EINVAL)
        description.inode.volume.truncate(description.inode, length)
        self._tell("truncate", None, "", description.inode)

    def fsync(self, fd: int) -> None:
        self.pass_gate("fsync", fd)
        self._description(fd)

    fdatasync = fsync

    def fchmod(self, fd: int, mode: int) -> None:
        self.pass_gate("fchmod", fd)
        inode = self._description(fd).inode
        inode.mode = stat.S_IFMT(inode.mode) | (mode & 0o7777)
        inode.ctime = inode.volume.now()

    # Attributes

    def fstat(self, fd: int) -> Stat:
        self.pass_gate("fstat", fd)
        inode = self._description(fd).inode
        self._tell("stat", None, "", inode)
        return Stat(inode)

    def stat(self, path: Target, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> Stat:
        self.pass_gate("stat", path)
        parent, name, inode = self._existing(path, dir_fd, follow=follow_symlinks)
        self._tell("stat", parent, name, inode)
        return Stat(inode)

    def lstat(self, path: str, *, dir_fd: int | None = None) -> Stat:
        return self.stat(path, dir_fd=dir_fd, follow_symlinks=False)

    def utime(
        self,
        path: Target,
        times: tuple[float, float] | None = None,
        *,
        ns: tuple[int, int] | None = None,
        dir_fd: int | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        self.pass_gate("utime", path)
        parent, name, inode = self._existing(path, dir_fd, follow=follow_symlinks)
        inode.volume.writable()
        now = inode.volume.now()
        inode.atime, inode.mtime = ns or (_times(times[0]), _times(times[1])) if ns or times else (now, now)
        inode.ctime = now
        self._tell("utime", parent, name, inode)

    def _statvfs(self, volume: Volume) -> os.statvfs_result:
        free, inodes = volume.capacity_blocks - volume.used_blocks, volume.capacity_inodes - volume.used_inodes
        free, inodes = max(0, free), max(0, inodes)
        flag = os.ST_RDONLY if volume.readonly else 0
        return os.statvfs_result(
            (BLOCK, BLOCK, volume.capacity_blocks, free, free, volume.capacity_inodes, inodes, inodes, flag, NAME_MAX)
        )

    def statvfs(self, path: Target) -> os.statvfs_result:
        self.pass_gate("statvfs", path)
        return self._statvfs(self._existing(path, None, follow=True)[2].volume)

    def fstatvfs(self, fd: int) -> os.statvfs_result:
        self.pass_gate("fstatvfs", fd)
        return self._statvfs(self._description(fd).inode.volume)

    # Names

    def mkdir(self, path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self.pass_gate("mkdir", path)
        parent, name, inode = self._find(path.rstrip("/") or path, dir_fd, follow=False)  # mkdir("a/") makes a
        if inode is not None:
            raise fail(errno.EEXIST, path)
        made = parent.volume.create(parent, name, stat.S_IFDIR | (mode & ~self.umask & 0o1777))
        self._tell("mkdir", parent, name, made)

    def symlink(self, target: str, path: str, *, dir_fd: int | None = None) -> None:
        self.pass_gate("symlink", path)
        parent, name, inode = self._find(path, dir_fd, follow=False)
        if inode is not None:
            raise fail(errno.EEXIST, path)
        made = parent.volume.create(parent, name, stat.S_IFLNK | 0o777)
        made.target = target
        self._tell("symlink", parent, name, made)

    def rmdir(self, path: str, *, dir_fd: int | None = None) -> None:
        self.pass_gate("rmdir", path)
        parent, name, inode = self._existing(path.rstrip("/") or path, dir_fd, follow=False)
        if not name:
            last = path.rstrip("/").rsplit("/", 1)[-1]
            raise fail({".": errno.EINVAL, "..": errno.ENOTEMPTY}.get(last, errno.EBUSY), path)
        inode.volume.writable()
        if not inode.is_directory:
            raise fail(errno.ENOTDIR, path)
        self._unmounted(parent, name, path)
        if inode.children:
            raise fail(errno.ENOTEMPTY, path)
        self._tell("rmdir", parent, name, inode)
        parent.volume.detach(parent, name)
        inode.nlink = 0
        inode.release()

    def _unmounted(self, parent: Inode, name: str, path: str) -> None:
        if (parent.children or {})[name].mounted is not None:
            raise fail(errno.EBUSY, path)

    def unlink(self, path: str, *, dir_fd: int | None = None) -> None:
        self.pass_gate("unlink", path)
        parent, name, inode = self._existing(path.rstrip("/") or path, dir_fd, follow=False)
        if inode.is_directory:
            raise fail(errno.EISDIR, path)
        if path.endswith("/"):
            raise fail(errno.ENOTDIR, path)
        inode.volume.writable()
        self._tell("unlink", parent, name, inode)
        self._unlink(parent, name, inode)

    remove = unlink

    def _unlink(self, parent: Inode, name: str, inode: Inode) -> None:
        parent.volume.detach(parent, name)
        inode.nlink -= 1
        inode.ctime = inode.volume.now()
        inode.release()

    def link(
        self,
        src: str,
        dst: str,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        self.pass_gate("link", (src, dst))
        # Python calls plain link(2), which follows nothing, unless a descriptor is given.
        follow = follow_symlinks and (src_dir_fd is not None or dst_dir_fd is not None)
        _, _, inode = self._existing(src, src_dir_fd, follow=follow)
        parent, name, taken = self._find(dst, dst_dir_fd, follow=False)
        if taken is not None:
            raise fail(errno.EEXIST, dst)
        if dst.endswith("/"):
            raise fail(errno.ENOENT, dst)
        if parent.volume is not inode.volume:
            raise fail(errno.EXDEV, dst)
        parent.volume.writable()
        if parent.nlink == 0:
            raise fail(errno.ENOENT, dst)
        if inode.is_directory or not parent.volume.has_links:
            raise fail(errno.EPERM, src)
        parent.volume.attach(parent, name, inode)
        inode.nlink += 1
        inode.ctime = inode.volume.now()
        self._tell("link", parent, name, inode)

    def rename(self, src: str, dst: str, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        self.pass_gate("rename", (src, dst))
        old_parent, old_name, inode = self._find(src, src_dir_fd, follow=False)
        parent, name, taken = self._find(dst, dst_dir_fd, follow=False)
        if old_parent.volume is not parent.volume:
            raise fail(errno.EXDEV, dst)
        if (inode is not None and not old_name) or (taken is not None and not name):
            raise fail(errno.EBUSY, src)
        if inode is None:
            raise fail(errno.ENOENT, src)
        parent.volume.writable()
        if inode.is_directory and is_below(parent, inode):
            raise fail(errno.EINVAL, dst)
        if taken is not None and taken.is_directory and is_below(old_parent, taken):
            raise fail(errno.ENOTEMPTY, dst)
        if inode is taken:
            return
        if parent.nlink == 0:
            raise fail(errno.ENOENT, dst)
        self._may_replace(inode, taken, dst)
        self._unmounted(old_parent, old_name, src)
        if taken is not None:
            self._unmounted(parent, name, dst)
            if taken.children:
                raise fail(errno.ENOTEMPTY, dst)
            self._replaced(parent, name, taken)
        self._tell("rename", old_parent, old_name, inode)
        parent.volume.detach(old_parent, old_name)
        parent.volume.attach(parent, name, inode)
        inode.ctime = inode.volume.now()
        self._tell("renamed", parent, name, inode)

    def replace(self, src: str, dst: str, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        self.rename(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def _may_replace(self, inode: Inode, taken: Inode | None, dst: str) -> None:
        if taken is None:
            return
        if inode.is_directory and not taken.is_directory:
            raise fail(errno.ENOTDIR, dst)
        if taken.is_directory and not inode.is_directory:
            raise fail(errno.EISDIR, dst)

    def _replaced(self, parent: Inode, name: str, taken: Inode) -> None:
        self._tell("rmdir" if taken.is_directory else "replace", parent, name, taken)
        parent.volume.detach(parent, name)
        taken.nlink = 0 if taken.is_directory else taken.nlink - 1
        taken.release()

    def scandir(self, path: Target = ".") -> Scan:
        self.pass_gate("scandir", path)
        if isinstance(path, int):
            description, own = self._description(path), False
        else:
            description, own = Description(self._existing(path, None, follow=True)[2], os.O_RDONLY), True
        if not description.inode.is_directory:
            if own:
                self.drop(description)
            raise fail(errno.ENOTDIR, path)
        return Scan(self, path, description, own)

    def listdir(self, path: Target = ".") -> list[str]:
        with self.scandir(path) as entries:
            return [entry.name for entry in entries]


def _scatter(data: bytearray, offset: int, buffers: Sequence[Any]) -> int:
    total = 0
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        part = data[offset + total : offset + total + len(view)]
        view[: len(part)] = part
        total += len(part)
        if len(part) < len(view):
            break
    return total
