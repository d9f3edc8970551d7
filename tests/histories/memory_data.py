"""Data in the file system in memory: reads, and writes as far as there is room."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Any

from histories.memory_open import ACCESS, Description, Opener
from histories.memory_tree import fail


class Data(Opener):
    """Calls that read and write what is open."""

    def _readable(self, fd: int) -> Description:
        description = self._description(fd)
        if description.flags & os.O_PATH or description.flags & ACCESS == os.O_WRONLY:
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
        if description.flags & os.O_PATH or description.flags & ACCESS == os.O_RDONLY:
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
        if description.flags & ACCESS == os.O_RDONLY:
            raise fail(errno.EINVAL)
        description.inode.volume.truncate(description.inode, length)
        self._tell("truncate", None, "", description.inode)

    def fsync(self, fd: int) -> None:
        self.pass_gate("fsync", fd)
        self._description(fd)

    fdatasync = fsync


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
