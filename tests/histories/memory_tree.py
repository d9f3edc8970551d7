"""Volumes in memory: inodes, blocks, links, mounts and the rules of path names. No file descriptors, no processes.

The semantics are Linux's, as `test_memory_fs.py` checks against the real `os` on tmpfs. A volume has one clock, the
server's, and counts what it holds, so that it can be full.
"""

from __future__ import annotations

import errno
import heapq
import os
import stat
from collections.abc import Callable, Iterator

BLOCK = 4096
NAME_MAX = 255
SYMLINKS_MAX = 40
"""Followed in one look-up before ELOOP (path_resolution(7))."""


def fail(code: int, path: object = None) -> OSError:
    """Make the error that the kernel's `code` becomes in Python."""
    return OSError(code, os.strerror(code), path)


class Inode:
    """A file, directory or symbolic link; `mode` says which. `name` is the last one given, of directories the only."""

    __slots__ = (
        "atime", "children", "ctime", "data", "mode", "mounted", "mtime", "name", "nlink", "number", "opens", "pages",
        "parent", "target", "volume",
    )  # fmt: skip

    def __init__(self, volume: Volume, mode: int) -> None:
        self.volume = volume
        self.number = volume.take_inode()
        self.mode = mode
        self.nlink = 2 if mode & 0o170000 == stat.S_IFDIR else 1
        self.opens = 0
        self.atime = self.mtime = self.ctime = volume.now()
        self.children: dict[str, Inode] | None = {} if mode & 0o170000 == stat.S_IFDIR else None
        self.data = bytearray()
        self.pages: set[int] = set()
        self.target = ""
        self.parent: Inode | None = None
        self.name = ""
        self.mounted: Inode | None = None

    @property
    def is_directory(self) -> bool:
        return self.children is not None

    @property
    def is_symlink(self) -> bool:
        return self.mode & 0o170000 == stat.S_IFLNK

    def touch(self) -> None:
        """Content or names changed."""
        self.mtime = self.ctime = self.volume.now()

    def release(self) -> None:
        """Give back what nobody names or holds open any more."""
        if self.nlink <= 0 and self.opens == 0 and self.number:
            self.volume.give_back(self)


class Volume:
    """One file system. `now` is the server's clock in ns; capacities may be changed at any time."""

    _devices = 40

    def __init__(
        self,
        now: Callable[[], int],
        *,
        capacity_blocks: int = 1 << 20,
        capacity_inodes: int = 1 << 20,
        full: int = errno.ENOSPC,
        readonly: bool = False,
        types_known: bool = True,
        stale_when_unlinked: bool = False,
        reuse_inodes: bool = True,
        spread: int = 0,
        names_need_room: bool = False,
        has_links: bool = True,
    ) -> None:
        Volume._devices += 1
        self.device = Volume._devices
        self.now = now
        self.capacity_blocks, self.capacity_inodes = capacity_blocks, capacity_inodes
        self.full = full
        self.readonly = readonly
        self.types_known = types_known
        self.stale_when_unlinked = stale_when_unlinked
        self.reuse_inodes = reuse_inodes
        self.spread = spread
        self.names_need_room = names_need_room
        self.has_links = has_links
        self.used_blocks = self.used_inodes = 0
        self._free: list[int] = []
        self._next = 1
        self.root = Inode(self, stat.S_IFDIR | 0o777)
        self.root.parent = self.root

    def take_inode(self) -> int:
        """Return a number: of an inode gone before, as ext4 does it, or a new one, as xfs and NFS handles act."""
        self.used_inodes += 1
        if self.reuse_inodes and self._free:
            return heapq.heappop(self._free)
        self._next += 1
        return self._next

    def give_back(self, inode: Inode) -> None:
        self.used_inodes -= 1
        self.used_blocks -= len(inode.pages)
        inode.pages.clear()
        heapq.heappush(self._free, inode.number)
        inode.number = -inode.number

    def create(self, parent: Inode, name: str, mode: int) -> Inode:
        """Make a new inode and name it."""
        self.writable()
        if parent.nlink == 0:
            raise fail(errno.ENOENT, name)
        if len(os.fsencode(name)) > NAME_MAX:
            raise fail(errno.ENAMETOOLONG, name)
        no_room = self.names_need_room and self.used_blocks >= self.capacity_blocks
        if no_room or self.used_inodes >= self.capacity_inodes:
            raise fail(self.full, name)
        inode = Inode(self, mode)
        self.attach(parent, name, inode)
        return inode

    def attach(self, parent: Inode, name: str, inode: Inode) -> None:
        assert parent.children is not None
        parent.children[name] = inode
        inode.name = name
        if inode.children is not None:
            inode.parent = parent
            parent.nlink += 1
        parent.touch()

    def detach(self, parent: Inode, name: str) -> Inode:
        assert parent.children is not None
        inode = parent.children.pop(name)
        if inode.children is not None:
            parent.nlink -= 1
        parent.touch()
        return inode

    def writable(self) -> None:
        if self.readonly:
            raise fail(errno.EROFS)

    def store(self, inode: Inode, offset: int, data: bytes) -> int:
        """Write; returns how many bytes fitted."""
        if not data:
            return 0
        fitting = 0
        while fitting < len(data):
            page = (offset + fitting) // BLOCK
            if page not in inode.pages:
                if self.used_blocks >= self.capacity_blocks:
                    break
                inode.pages.add(page)
                self.used_blocks += 1
            fitting = min(len(data), (page + 1) * BLOCK - offset)
        if not fitting:
            raise fail(self.full)
        if len(inode.data) < offset:
            inode.data.extend(bytes(offset - len(inode.data)))
        inode.data[offset : offset + fitting] = data[:fitting]
        inode.touch()
        return fitting

    def truncate(self, inode: Inode, length: int) -> None:
        kept = -(-length // BLOCK)
        gone = {page for page in inode.pages if page >= kept}
        inode.pages -= gone
        self.used_blocks -= len(gone)
        del inode.data[length:]
        inode.data.extend(bytes(length - len(inode.data)))
        inode.touch()


def walk(start: Inode, path: str, *, follow: bool, root: Inode) -> tuple[Inode, str, Inode | None]:
    """Resolve `path` from `start`. Returns (directory, last name, inode or None when that name is absent).

    The last name is "" when the path ends in a place that has none of its own: `/`, `.`, `..`.
    """
    if path == "":
        raise fail(errno.ENOENT, path)
    here, budget = root if path[0] == "/" else start, SYMLINKS_MAX
    parts = [part for part in reversed(path.split("/")) if part]
    must_be_directory = path[-1] == "/"
    name, found, parent = "", here, here
    while parts:
        part = parts.pop()
        here = found
        if here.children is None:
            raise fail(errno.ENOTDIR, path)
        if part in (".", ".."):
            found = here if part == "." else up(here)
            name, parent = "", found
            continue
        child = _child(here, part, path, is_last=not parts)
        if child is None:
            return here, part, None
        if child.target and (parts or follow or must_be_directory):
            budget -= 1
            if budget < 0:
                raise fail(errno.ELOOP, path)
            found = root if child.target[0] == "/" else here
            parts.extend(part for part in reversed(child.target.split("/")) if part)
            name, parent = "", found
        else:
            name, found, parent = part, child.mounted or child, here
    if must_be_directory and found.children is None:
        raise fail(errno.ENOTDIR, path)
    return parent, name, found


def _child(directory: Inode, name: str, path: str, *, is_last: bool) -> Inode | None:
    """Return what has the name; None where nothing has and a last name may be new."""
    if len(name) > NAME_MAX:
        raise fail(errno.ENAMETOOLONG, path)
    child = (directory.children or {}).get(name)
    if child is None and not is_last:
        raise fail(errno.ENOENT, path)
    return child


def up(directory: Inode) -> Inode:
    """Return `..`."""
    return directory.parent or directory


def is_below(inode: Inode, ancestor: Inode) -> bool:
    """Tell whether the directory `inode` is `ancestor` or lies in it."""
    while True:
        if inode is ancestor:
            return True
        if inode.parent is None or inode.parent is inode:
            return False
        inode = inode.parent


def everything(directory: Inode, prefix: str = "") -> Iterator[tuple[str, Inode]]:
    """Yield (path, inode) of all below `directory`, parents first; never crosses into mounts."""
    assert directory.children is not None
    for name, inode in sorted(directory.children.items()):
        path = f"{prefix}/{name}"
        yield path, inode
        if inode.children is not None:
            yield from everything(inode, path)
