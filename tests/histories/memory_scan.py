"""Directories of the file system in memory as they are listed, in batches, while names come and go."""

from __future__ import annotations

import errno
import os
import stat
import zlib
from collections.abc import Iterator

from histories.memory_attributes import Attributes, Stat
from histories.memory_open import Description, Target
from histories.memory_tree import Inode, fail

_BATCH = 16
"""Names that one getdents call brings: small, so that histories have many calls in the middle of a directory."""


class Entry:
    """`os.DirEntry`."""

    __slots__ = ("_at", "_files", "_inode_number", "_kind", "name", "path")

    def __init__(self, files: Attributes, at: Target, name: str, inode: Inode) -> None:
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

    def __init__(self, files: Attributes, at: Target, description: Description, own: bool) -> None:
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


class Lister(Attributes):
    """Calls that list directories."""

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
