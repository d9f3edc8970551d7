"""Real passes over a root that is attacked meanwhile; tells what changed outside of it. Run by `test_tree.py`.

    unshare --mount python -m fuzz.hostile DIRECTORY --mounts [--seed 1] [--passes 20] ...

`DIRECTORY/outside` is the canary: a tree with the very names, ages and records of `DIRECTORY/root`, so that whatever
follows a symbolic link or a bind mount into it finds everything there due for deletion. What is renamed out of the root
goes to `DIRECTORY/limbo`; it was the store's own, so its content counts as neither.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
import os
import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from epd.collector.collection import Collection
from epd.collector.files import KernelFiles
from fuzz.attacker import Attacker
from unit.collector.tree import CLAIM, DEAD, LIVE, POLICY, Tree

EXAMPLE = "v1-example-00000000000c"
DAY = 86400.0
ALL_DUE = dataclasses.replace(POLICY, entry_ttl=3600.0, high_percent=1, low_percent=1, evict_example=True)
ACTIONS_PER_PASS = 60


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
