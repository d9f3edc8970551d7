"""The real `os` on tmpfs and the file system in memory, side by side: one call is played on both."""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Iterator
from typing import Any

from histories.memory_fs import Files
from histories.memory_tree import BLOCK, Volume

DEPTH = "d0/d1/d2/d3/d4/d5/d6/d7/box"
"""So deep that no path of a test climbs out of what both sides have."""
NAMES = ("a", "b", "c", "up", "ln")
OLD = 10**18
"""ns; below: a time that a test has set, above: the clock's."""


class Twin:
    """Both sides, a list of pairs of descriptors, and the numbers of inodes as they correspond."""

    def __init__(self, top: str) -> None:
        self.clock = OLD
        self.real_top = top
        os.makedirs(f"{top}/{DEPTH}")
        volume = Volume(self._now, reuse_inodes=False)
        self.files = Files(volume.root)
        path = ""
        for part in DEPTH.split("/"):
            path += f"/{part}"
            self.files.mkdir(path)
        self.fds: list[tuple[int, int]] = []
        self.base = (
            os.open(f"{top}/{DEPTH}", os.O_DIRECTORY),
            self.files.open(f"/{DEPTH}", os.O_DIRECTORY),
        )
        self.numbers: dict[int, int] = {}

    def _now(self) -> int:
        self.clock += 1000
        return self.clock

    def close(self) -> None:
        for real, _ in [*self.fds, self.base]:
            os.close(real)


def plain(value: Any) -> Any:
    """A stat as far as both must agree."""
    if not hasattr(value, "st_mode"):
        return value
    directory = stat.S_ISDIR(value.st_mode)
    return {
        "mode": oct(value.st_mode),
        "nlink": value.st_nlink,
        "size": None if directory else value.st_size,
        "blocks": value.st_blocks if stat.S_ISREG(value.st_mode) else None,
        "mtime": value.st_mtime_ns if value.st_mtime_ns < OLD else "now",
    }


def outcome(call: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        return call(*args, **kwargs)
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def tree(list_directory: Any, look: Any, directory: str) -> Iterator[tuple[str, Any]]:
    for name in sorted(list_directory(directory)):
        path = f"{directory}/{name}"
        found = look(path, follow_symlinks=False)
        yield path, plain(found)
        if stat.S_ISDIR(found.st_mode):
            yield from tree(list_directory, look, path)


class Player:
    """Draws calls and plays each on both sides."""

    def __init__(self, seed: int, twin: Twin) -> None:
        self.rng, self.twin = random.Random(seed), twin
        self.plays = {
            "open": self.open,
            "close": self.close,
            "write": self.write,
            "read": self.read,
            "stat": self.attributes,
            "utime": self.utime,
            "mkdir": lambda: self.both("mkdir", self.path(), 0o775, dir_fd=self.directory()),
            "rmdir": lambda: self.both("rmdir", self.path(), dir_fd=self.directory()),
            "unlink": lambda: self.both("unlink", self.path(), dir_fd=self.directory()),
            "link": lambda: self.two_names("link"),
            "rename": lambda: self.two_names("rename"),
            "symlink": self.symlink,
            "list": self.listing,
            "fchmod": lambda: self.both("fchmod", self.fd(), self.rng.choice((0o600, 0o664))),
            "ftruncate": lambda: self.both("ftruncate", self.fd(), self.rng.choice((0, 3, 9000))),
        }

    def path(self) -> str:
        rng = self.rng
        parts = [rng.choice(NAMES) for _ in range(rng.choice((1, 1, 1, 2, 2, 3)))]
        if rng.random() < 0.08:
            parts.insert(rng.randrange(len(parts) + 1), rng.choice((".", "..")))
        path = "/".join(parts)
        return path + "/" if rng.random() < 0.03 else path

    def fd(self) -> tuple[int, int]:
        return self.rng.choice(self.twin.fds) if self.twin.fds and self.rng.random() < 0.9 else (9999, 9999)

    def directory(self) -> tuple[int, int]:
        return self.fd() if self.rng.random() < 0.1 else self.twin.base

    def both(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Play one call; arguments that are pairs of descriptors are split."""
        sides = []
        for side, api in enumerate((os, self.twin.files)):
            split = [arg[side] if isinstance(arg, tuple) and len(arg) == 2 else arg for arg in args]
            named = {key: arg[side] if key.endswith("dir_fd") else arg for key, arg in kwargs.items()}
            sides.append(outcome(getattr(api, name), *split, **named))
        return sides[0], sides[1]

    def open(self) -> tuple[Any, Any]:
        rng = self.rng
        flags = rng.choice((os.O_RDONLY, os.O_WRONLY, os.O_RDWR))
        for flag, chance in (
            (os.O_CREAT, 0.6),
            (os.O_EXCL, 0.3),
            (os.O_TRUNC, 0.1),
            (os.O_APPEND, 0.1),
            (os.O_NOFOLLOW, 0.3),
            (os.O_DIRECTORY, 0.15),
        ):
            if rng.random() < chance:
                flags |= flag
        if flags & os.O_EXCL and not flags & os.O_CREAT:
            flags &= ~os.O_EXCL  # undefined by open(2)
        if flags & os.O_DIRECTORY and flags & os.O_CREAT:
            flags &= ~os.O_CREAT  # EINVAL since Linux 6.3 only
        if flags & os.O_DIRECTORY:
            flags &= ~os.O_TRUNC
        path = self.path().rstrip("/") if flags & os.O_CREAT else self.path()
        real, ours = self.both("open", path, flags, 0o640, dir_fd=self.directory())
        if isinstance(real, int) and isinstance(ours, int):
            self.twin.fds.append((real, ours))
            return "opened", "opened"
        return real, ours

    def close(self) -> tuple[Any, Any]:
        pair = self.fd()
        result = self.both("close", pair)
        if pair in self.twin.fds:
            self.twin.fds.remove(pair)
        return result

    def write(self) -> tuple[Any, Any]:
        data = self.rng.randbytes(self.rng.choice((0, 1, 100, BLOCK, 3 * BLOCK + 5)))
        if self.rng.random() < 0.5:
            return self.both("write", self.fd(), data)
        return self.both("pwrite", self.fd(), data, self.rng.choice((0, 7, 5000, 20000)))

    def read(self) -> tuple[Any, Any]:
        if self.rng.random() < 0.5:
            return self.both("read", self.fd(), self.rng.choice((0, 10, 10000)))
        return self.both("pread", self.fd(), self.rng.choice((10, 50000)), self.rng.choice((0, 7, 5000)))

    def attributes(self) -> tuple[Any, Any]:
        follow = self.rng.random() < 0.5
        if self.rng.random() < 0.3:
            real, ours = self.both("fstat", self.fd())
        else:
            real, ours = self.both("stat", self.path(), dir_fd=self.directory(), follow_symlinks=follow)
        if not isinstance(real, str) and not isinstance(ours, str):
            assert self.twin.numbers.setdefault(ours.st_ino, real.st_ino) == real.st_ino
        return real, ours

    def utime(self) -> tuple[Any, Any]:
        old = self.rng.randrange(1, OLD)
        times = {} if self.rng.random() < 0.3 else {"ns": (old, old)}
        return self.both("utime", self.path(), dir_fd=self.directory(), follow_symlinks=False, **times)

    def two_names(self, name: str) -> tuple[Any, Any]:
        if self.rng.random() < 0.5:
            top = (f"{self.twin.real_top}/{DEPTH}", f"/{DEPTH}")
            sides = []
            source, target = self.path().rstrip("/"), self.path().rstrip("/")
            for side, api in enumerate((os, self.twin.files)):
                sides.append(outcome(getattr(api, name), f"{top[side]}/{source}", f"{top[side]}/{target}"))
            return sides[0], sides[1]
        extra: dict[str, Any] = {"follow_symlinks": False} if name == "link" else {}
        return self.both(
            name,
            self.path().rstrip("/"),
            self.path().rstrip("/"),
            src_dir_fd=self.directory(),
            dst_dir_fd=self.directory(),
            **extra,
        )

    def symlink(self) -> tuple[Any, Any]:
        target = self.rng.choice(("a", "b", "a/b", "../a", "..", ".", "ln", "nowhere"))
        return self.both("symlink", target, self.path().rstrip("/"), dir_fd=self.directory())

    def listing(self) -> tuple[Any, Any]:
        if self.rng.random() < 0.5:
            real, ours = self.both("listdir", self.fd())
            return (real, ours) if isinstance(real, str) else (sorted(real), sorted(ours))
        path = f"/{DEPTH}/{self.path()}"
        sides = []
        for api, top in ((os, self.twin.real_top), (self.twin.files, "")):
            found = outcome(lambda api=api, top=top: sorted(kinds(api.scandir(top + path))))
            sides.append(found)
        return sides[0], sides[1]

    def step(self) -> tuple[str, Any, Any]:
        choice = self.rng.choices(list(self.plays), (18, 6, 10, 6, 10, 8, 12, 6, 8, 8, 14, 6, 6, 2, 3))[0]
        real, ours = self.plays[choice]()
        return choice, plain(real), plain(ours)


def kinds(entries: Any) -> list[tuple[str, bool, bool, bool]]:
    with entries:
        return [
            (entry.name, entry.is_dir(follow_symlinks=False), entry.is_file(), entry.is_symlink()) for entry in entries
        ]
