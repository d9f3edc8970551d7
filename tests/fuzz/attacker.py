"""Swaps what lies in a root by system calls, as somebody with write access to the volume can."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from epd.collector.files import KernelFiles, directory
from unit.collector.tree import DEAD

_NOREPLACE, _EXCHANGE = 1, 2
_BIND, _DETACH = 4096, 2
_AT_FDCWD = -100
_libc = ctypes.CDLL(None, use_errno=True)


class Attacker:
    """Swaps what lies in the root, step by step; never acts through what it swapped itself."""

    def __init__(self, base: Path, seed: int, *, mounts: bool) -> None:
        self.root, self.outside, self.limbo = base / "root", base / "outside", base / "limbo"
        self._random = random.Random(seed)
        self._files = KernelFiles()
        self._made = 0
        self.actions: Counter[str] = Counter()
        names = [path.relative_to(self.root) for path in sorted(self.root.rglob("*"))]
        self._directories = [name for name in names if (self.root / name).is_dir()]
        self._entries = [name for name in names if (self.root / name).is_file()]
        steps = [self.link, self.link, self.move_out, self.move_in, self.replace, self.replace]
        self._steps = [*steps, self.bind, self.bind_file, self.unbind] if mounts else steps

    def step(self) -> None:
        """Do one thing; what the collector or an earlier step took away is no failure."""
        chosen = self._random.choice(self._steps)
        try:
            chosen()
        except OSError as error:
            self.actions[f"{chosen.__name__}: {errno.errorcode.get(error.errno or 0, '')}"] += 1
        else:
            self.actions[chosen.__name__] += 1

    def link(self) -> None:
        """Exchange a directory for a symbolic link to its twin outside, in one step."""
        name = self._directory()
        with self._parent(name) as fd:
            side = self._side()
            os.symlink(self._twin(name), side)
            _rename(side, name.name, fd, exchange=True)

    def move_out(self) -> None:
        name = self._directory()
        with self._parent(name) as fd:
            os.rename(name.name, self._side(), src_dir_fd=fd)

    def move_in(self) -> None:
        """Put something of limbo where a directory was: often a version where a shard was, or the other way round."""
        name, found = self._directory(), sorted(os.listdir(self.limbo))
        if found:
            with self._parent(name) as fd:
                _rename(self.limbo / self._random.choice(found), name.name, fd)

    def replace(self) -> None:
        """Put something else in the place of an entry."""
        name = self._random.choice(self._entries)
        make = self._random.choice((self._hard_link, self._symbolic_link, self._fifo, self._socket, self._deep))
        with self._parent(name) as fd:
            side = self._side()
            make(name, side)
            try:
                _rename(side, name.name, fd, exchange=True)
            except FileNotFoundError:
                _rename(side, name.name, fd)

    def bind(self) -> None:
        name = self._directory()
        self._bind(self._twin(name), name)

    def bind_file(self) -> None:
        name = self._random.choice(self._entries)
        self._bind(self.outside / name, name)

    def unbind(self) -> None:
        if places := self._mounts():
            _check(_libc.umount2(os.fsencode(self._random.choice(places)), _DETACH))

    def end(self) -> None:
        """Take all mounts away, wherever they were moved to meanwhile."""
        for place in reversed(self._mounts()):
            _check(_libc.umount2(os.fsencode(place), _DETACH))

    def _mounts(self) -> list[str]:
        places = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        return [place for place in places if place.startswith((f"{self.root}/", f"{self.limbo}/"))]

    def _bind(self, source: Path, name: Path) -> None:
        with self._parent(name) as fd:
            target = os.open(name.name, os.O_PATH | os.O_NOFOLLOW, dir_fd=fd)
            try:
                if stat.S_ISLNK(os.fstat(target).st_mode):
                    raise OSError(errno.ELOOP, "nothing can be mounted on a symbolic link")
                place = f"/proc/self/fd/{target}"
                _check(_libc.mount(os.fsencode(source), os.fsencode(place), None, _BIND, None))
            finally:
                os.close(target)

    @contextmanager
    def _parent(self, name: Path) -> Iterator[int]:
        with ExitStack() as stack:
            fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, fd)
            for part in name.parts[:-1]:
                fd = stack.enter_context(directory(self._files, part, dir_fd=fd))
            yield fd

    def _directory(self) -> Path:
        """Choose a place: one that was a directory at the beginning, or one that the collector put into the trash."""
        trash = Path(".epd-gc/trash")
        if self._random.random() < 0.2:
            with self._parent(trash / "any") as fd:
                return trash / self._random.choice(sorted(os.listdir(fd)) or [f"{DEAD}.0"])
        return self._random.choice(self._directories)

    def _twin(self, name: Path) -> Path:
        found = self.outside / name
        return found if found.exists() else self.outside / ".epd-gc" / "trash" / f"{DEAD}.0"

    def _side(self) -> Path:
        self._made += 1
        return self.limbo / f"n{self._made}"

    def _hard_link(self, name: Path, side: Path) -> None:
        # Where the collector sets times, a link makes the file the root's own: no name tells the two apart.
        if name.parts[0] == ".epd-gc" and "pins" not in name.parts and "trash" not in name.parts:
            raise OSError(errno.EPERM, "left alone")
        os.link(self.outside / name, side)

    def _symbolic_link(self, name: Path, side: Path) -> None:
        os.symlink(self.outside / name, side)

    def _fifo(self, name: Path, side: Path) -> None:
        os.mkfifo(side)

    def _socket(self, name: Path, side: Path) -> None:
        os.mknod(side, stat.S_IFSOCK | 0o600)

    def _deep(self, name: Path, side: Path) -> None:
        os.makedirs(side / "/".join("d" * 12))


def _rename(path: Path, name: str, dir_fd: int, *, exchange: bool = False) -> None:
    how = _EXCHANGE if exchange else _NOREPLACE
    _check(_libc.renameat2(_AT_FDCWD, os.fsencode(path), dir_fd, os.fsencode(name), how))


def _check(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
