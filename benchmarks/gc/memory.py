"""Memory of the whole process over passes that count, expire and evict millions of entries of a generated directory.

The root, its housekeeping and the shards are real; what is in the shards is made up by a file system in front of the
real one, entry by entry. One of 32 is pinned, each by a link of its own: the only entries that are remembered at all.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

import measure
import trees

import epd.collector.main  # noqa: F401 - its imports are part of the process
from epd.collector.files import KernelFiles
from epd.connector import layout

LIMIT: Final = 64
"""MiB of resident memory at 10 million entries."""
_SIZE: Final = 4096
_AGES: Final = 1024
_PINNED: Final = 32


def run(entries: int) -> None:
    found = [_measured(number) for number in (entries // 10, entries)]
    for one in found:
        print(
            f"{one['entries']:>9} entries   peak RSS {one['peak'] / 1024:>6.1f} MiB (of it {one['base'] / 1024:.1f} "
            f"before the first pass)   evicted {one['removed']}, {one['seconds']:.0f} s",
            flush=True,
        )
    peak = found[-1]["peak"] / 1024
    print(
        f"limit {LIMIT} MiB: {peak / LIMIT:.2f} of it, {measure.verdict(reached=peak <= LIMIT)}; "
        f"10 times the entries: {found[-1]['peak'] / found[0]['peak']:.2f} times the memory",
        flush=True,
    )


def _measured(entries: int) -> dict[str, Any]:
    command = [sys.executable, __file__, str(entries)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


class Generated:
    """The real file system, with entries in the shards that were never written."""

    def __init__(self, entries: int) -> None:
        self._real: Any = KernelFiles()
        self._each = entries // 256
        self._shards: set[int] = set()
        self._removed = 0
        self._total = self._each * 256
        self._device = 0
        self._looks = 0
        now = time.time()
        ages = [trees.YOUNGEST + (trees.AGE - trees.YOUNGEST) * step / _AGES for step in range(_AGES)]
        self._plain = [self._status(now - age, inode=0, links=1) for age in ages]
        self._stamp = now - trees.AGE

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def _status(self, stamp: float, *, inode: int, links: int) -> Any:
        return SimpleNamespace(
            st_mode=stat.S_IFREG | layout.FILE_MODE,
            st_dev=self._device,
            st_ino=inode,
            st_nlink=links,
            st_size=_SIZE,
            st_blocks=_SIZE // 512,
            st_mtime=stamp,
        )

    def open_directory(self, name: str, *, dir_fd: int) -> int:
        fd = self._real.open_directory(name, dir_fd=dir_fd)
        if layout.SHARD_PATTERN.fullmatch(name):
            self._shards.add(fd)
            if not self._device:
                self._device = os.fstat(fd).st_dev
                for status in self._plain:
                    status.st_dev = self._device
        return fd

    def close(self, fd: int, /) -> None:
        self._shards.discard(fd)
        self._real.close(fd)

    def scandir(self, fd: int, /) -> Any:
        return self._entries() if fd in self._shards else self._real.scandir(fd)

    @contextmanager
    def _entries(self) -> Iterator[Iterator[Any]]:
        yield (_Entry(f"{number:064x}{layout.ENTRY_SUFFIX}") for number in range(self._each))

    def stat(self, path: str, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> Any:
        if dir_fd not in self._shards:
            return self._real.stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        self._looks += 1
        if self._looks % _PINNED == 0:
            return self._status(self._stamp, inode=self._looks, links=2)
        return self._plain[self._looks % _AGES]

    def unlink(self, path: str, *, dir_fd: int | None = None) -> None:
        if dir_fd not in self._shards:
            self._real.unlink(path, dir_fd=dir_fd)
        self._removed += 1

    def fstatvfs(self, fd: int, /) -> Any:  # noqa: ARG002 - the signature of os
        """Tell of a volume that the entries fill to 90 %."""
        blocks = self._total * 10 // 9
        free = blocks - self._total + self._removed
        return SimpleNamespace(
            f_blocks=blocks, f_bfree=free, f_bavail=free, f_frsize=_SIZE, f_files=0, f_ffree=0, f_favail=0
        )


class _Entry:
    """As os.DirEntry, of a file."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002 - as of os.DirEntry
        return False

    def is_file(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002 - as of os.DirEntry
        return True


def _peak() -> int:
    """Return the most resident memory so far, in KiB; that of getrusage would begin with our parent's."""
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(found[1]) for line in lines if (found := re.match(r"VmHWM:\s+(\d+) kB", line)))


def _child(entries: int) -> None:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as root:
        trees.version(root, trees.LIVE, 0)
        collection = trees.collection(root, files=Generated(entries))
        base, removed = _peak(), 0
        for _ in range(2):
            result = collection.run(trees.CLAIM, trees.POLICY)
            removed += result.removed_entries
            if result.errors:
                raise SystemExit(str(result.errors))
        if not removed:
            raise SystemExit("nothing was evicted")
    seconds = time.perf_counter() - began
    print(json.dumps({"entries": entries, "base": base, "peak": _peak(), "removed": removed, "seconds": seconds}))


if __name__ == "__main__":
    _child(int(sys.argv[1]))
