"""Real passes over a root that is attacked meanwhile; tells what changed outside of it. Run by `test_tree.py`.

    unshare --mount python -m fuzz.hostile DIRECTORY --mounts [--seed 1] [--passes 20] ...

`DIRECTORY/outside` is the canary: a tree with the very names, ages and records of `DIRECTORY/root`, so that whatever
follows a symbolic link or a bind mount into it finds everything there due for deletion. What is renamed out of the root
goes to `DIRECTORY/limbo`; it was the store's own, so its content counts as neither.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import errno
import hashlib
import json
import math
import os
import random
import shutil
import stat
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from epd.collector.collection import Collection
from epd.collector.files import KernelFiles, directory
from unit.collector.tree import CLAIM, DEAD, LIVE, POLICY, Tree

EXAMPLE = "v1-example-00000000000c"
DAY = 86400.0
ALL_DUE = dataclasses.replace(POLICY, entry_ttl=3600.0, high_percent=1, low_percent=1, evict_example=True)
ACTIONS_PER_PASS = 60
_NOREPLACE, _EXCHANGE = 1, 2
_BIND, _DETACH = 4096, 2
_AT_FDCWD = -100
_libc = ctypes.CDLL(None, use_errno=True)


class FollowingFiles(KernelFiles):
    """The mutation: directories are opened as anybody would."""

    def open_directory(self, name: str, *, dir_fd: int) -> int:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=dir_fd)


class CrossingFiles(KernelFiles):
    """A finer mutation: no symbolic link is followed, but mounts are crossed."""

    def open_directory(self, name: str, *, dir_fd: int) -> int:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=dir_fd)


FILES: dict[str, Callable[[], KernelFiles]] = {
    "safe": KernelFiles,
    "without-openat2": lambda: KernelFiles(openat2=False),
    "following": FollowingFiles,
    "crossing": CrossingFiles,
}


def build(path: Path) -> Tree:
    """Make a root on which everything that a pass may ever delete is due, in both layouts."""
    tree = Tree(path)
    tree.live = {LIVE: ("qwen",), EXAMPLE: ("qwen",)}
    tree.record(LIVE)
    tree.record(EXAMPLE, layout="Example")
    tree.dead(entries=8)
    for number in range(12):
        tree.entry(LIVE, f"entry-{number}")
        tree.example(EXAMPLE, f"picture-{number}")
    tree.file(f"{LIVE}/00/.tmp-left-over")
    for name in ("00/" + "0" * 64 + ".safetensors", "0/encoder_cache.safetensors", "a/b/c/encoder_cache.safetensors"):
        tree.file(f".epd-gc/trash/{DEAD}.0/{name}")
    for name in ("0", "1", "heartbeat"):
        tree.file(f".epd-gc/pins/pod-gone/nonce/{name}")
    tree.file(".epd-gc/probe/old", age=2 * DAY)
    tree.file(".epd-gc/spare/0", size=0)
    tree.aged(tree.record("v1-long-gone-00000000000d"), 60 * DAY)
    tree.file(".epd-gc/versions/.tmp-left-over")
    tree.file("photos/holiday.jpg")
    return tree


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


class Between:
    """A file system that is attacked before one of `every` calls: the same seed makes the same history."""

    def __init__(self, files: KernelFiles, attack: Callable[[], None], seed: int, every: int) -> None:
        self._files = files
        self._attack = attack
        self._random = random.Random(seed)
        self._every = every

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._files, name)

        def attacked(*args: Any, **kwargs: Any) -> Any:
            if self._random.randrange(self._every) == 0:
                self._attack()
            return call(*args, **kwargs)

        return attacked


def snapshot(base: Path) -> dict[str, Any]:
    """Everything below `base` but root and limbo: kind, mode, size, time of writing and content."""
    found: dict[str, Any] = {}
    for path in [base, *sorted((base / "outside").rglob("*"), key=str), base / "outside"]:
        status = path.lstat()
        found[str(path)] = (status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, _content(path))
    return found


def _content(path: Path) -> Any:
    if path.is_symlink():
        return os.readlink(path)
    return sorted(os.listdir(path)) if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()


def one_pass(base: Path, seed: int, arguments: argparse.Namespace) -> tuple[Counter[str], Counter[str]]:
    """Build a root, collect it under attack; return what was done to it and what the collector did and met."""
    tree = build(base / "root")
    attacker = Attacker(base, seed, mounts=arguments.mounts)
    files: Any = FILES[arguments.files]()
    over = threading.Event()

    def attack() -> None:
        for _ in range(ACTIONS_PER_PASS):
            if over.is_set():
                return
            attacker.step()

    thread = threading.Thread(target=attack)
    try:
        if arguments.mode == "at-once":
            thread.start()
        else:
            files = Between(files, attacker.step, seed, every=8)
        collection = Collection(str(base / "root"), name="me", ask=tree.ask, files=files, rate=math.inf, clock=_zero)
        result = collection.run(CLAIM, ALL_DUE)
    finally:
        over.set()
        if thread.ident is not None:
            thread.join()
        attacker.end()
    met = Counter({f"removed {cause}": number for cause, number in result.removed.items()})
    met.update({f"spared {why}": number for why, number in result.spared.items()})
    met.update({f"{call}: {number}": count for (call, number), count in result.errors.items()})
    return attacker.actions, met


def _zero() -> float:
    return 1000.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--mode", choices=("between", "at-once"), default="between")
    parser.add_argument("--files", choices=sorted(FILES), default="safe")
    parser.add_argument("--mounts", action="store_true", help="bind mounts too; in a mount namespace of its own")
    arguments = parser.parse_args()
    base: Path = arguments.directory
    (base / "outside").mkdir()
    build(base / "outside")
    for name in ("root", "limbo"):
        (base / name).mkdir()
    before = snapshot(base)
    done: Counter[str] = Counter()
    met: Counter[str] = Counter()
    changed: dict[str, str] = {}
    for seed in range(arguments.seed, arguments.seed + arguments.passes):
        actions, found = one_pass(base, seed, arguments)
        done.update(actions)
        met.update(found)
        for name in ("root", "limbo"):
            _empty(base / name)
        # The base's own time changes by nobody but us: its directories stay.
        after = snapshot(base)
        if after != before:
            changed = {
                name: f"seed {seed}: {before.get(name)} is now {after.get(name)}"
                for name in before.keys() | after.keys()
                if before.get(name) != after.get(name)
            }
            break
    print(json.dumps({"changed": changed, "done": done, "met": met}))


def _empty(directory: Path) -> None:
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


if __name__ == "__main__":
    main()
