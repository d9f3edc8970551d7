"""Attributes in the file system in memory: of inodes, and of their volumes."""

from __future__ import annotations

import os
import stat

from histories.memory_open import Opener, Target
from histories.memory_tree import BLOCK, NAME_MAX, Inode, Volume


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


def _times(value: float) -> int:
    return int(value * 10**9)


class Attributes(Opener):
    """Calls that tell of inodes and volumes, or set times and modes."""

    def fchmod(self, fd: int, mode: int) -> None:
        self.pass_gate("fchmod", fd)
        inode = self._description(fd).inode
        inode.mode = stat.S_IFMT(inode.mode) | (mode & 0o7777)
        inode.ctime = inode.volume.now()

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
