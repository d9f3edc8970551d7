"""One collector on a volume where nothing else happens: order, amounts and limits that moving histories cannot measure.

The numbers in names are the invariants of the collection protocol (`oracle.INVARIANTS`).
"""

from __future__ import annotations

import json
import os
import random
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from epd.collector.collection import Collection
from epd.collector.inputs import Claim, Liveness, Policy
from epd.collector.result import PassResult
from epd.connector import layout
from histories.memory_attributes import Stat
from histories.memory_fs import Files
from histories.memory_tree import BLOCK, Inode, Volume, everything

LIVE, DEAD = "v1-live-0123456789ab", "v1-dead-0123456789ab"
EPOCH = 1_795_000_000 * 10**9
BUCKET = 0.0046
"""Width of an age bucket, as a share of the age."""


@dataclass
class Still:
    """A root of ours with one version that lives."""

    capacity: int = 100
    names_need_room: bool = False
    now: float = 0.0
    live: frozenset[str] = frozenset({LIVE})
    policy: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.volume = Volume(self.clock_ns, capacity_blocks=self.capacity, names_need_room=self.names_need_room)
        self.files = Files(self.volume.root)
        self.nonces = iter(range(10**6))
        for directory in ("", layout.VERSIONS):
            self.files.mkdir(f"/{layout.HOUSEKEEPING}/{directory}")
        owner = {"format": 1, "rootId": "r", "claimUid": "u", "claim": "ai/cache", "former": [], "created": ""}
        self.write(f"/{layout.HOUSEKEEPING}/{layout.OWNER}", json.dumps(owner).encode())
        self.record(LIVE)
        self.collection = Collection(
            "/", name="me", ask=self.ask, files=self.files, clock=lambda: self.now, sleep=self.sleep,
            nonce=lambda: f"{next(self.nonces):016x}",
        )  # fmt: skip

    def clock_ns(self) -> int:
        return EPOCH + int(self.now * 10**9)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def write(self, path: str, data: bytes) -> Inode:
        fd = self.files.open(path, os.O_CREAT | os.O_WRONLY, 0o660)
        self.files.write(fd, data)
        inode = self.files.inode_of(fd)
        self.files.close(fd)
        return inode

    def record(self, version: str) -> None:
        self.files.mkdir(f"/{version}")
        record = {"format": 1, "version": version, "claim": "ai/cache", "layout": "Managed", "inputs": {}}
        path = f"/{layout.HOUSEKEEPING}/{layout.VERSIONS}/{layout.record_name(version)}"
        self.write(path, json.dumps(record | {"created": ""}).encode())

    def entry(self, version: str, identifier: str, blocks: int, age: float) -> str:
        shard, name = layout.entry_name(identifier)
        if shard not in self.files.listdir(f"/{version}"):
            self.files.mkdir(f"/{version}/{shard}")
        path = f"/{version}/{shard}/{name}"
        self.write(path, bytes(blocks * BLOCK))
        stamp = self.clock_ns() - int(age * 10**9)
        self.files.utime(path, ns=(stamp, stamp))
        return path

    def ask(self) -> Liveness:
        return Liveness(valid=True, live=dict.fromkeys(self.live, ("one",)), pods=frozenset({"pod"}), taken=self.now)

    def passes(self) -> PassResult:
        """Make a pass, and those that it says are left."""
        chosen: dict[str, Any] = {
            "enabled": True, "dry_run": False, "version_grace": 600.0, "entry_ttl": None, "min_idle": 1800.0,
            "high_percent": 70, "low_percent": 50,
        }  # fmt: skip
        policy = Policy(**(chosen | self.policy))
        while (result := self.collection.run(Claim(name="ai/cache", uid="u"), policy)).more:
            self.now += 1
        return result

    def ages(self) -> dict[str, float]:
        """Path to age of the entries that are there."""
        return {
            path: (self.clock_ns() - inode.mtime) / 1e9
            for path, inode in everything(self.volume.root)
            if path.startswith("/v1-") and inode.children is None
        }


def filled(seed: int, blocks: int) -> Still:
    """A version with entries of random size and age, `blocks` in all."""
    still, rng, number = Still(), random.Random(seed), 0
    while still.volume.used_blocks < blocks:
        size = min(rng.choice((1, 1, 2, 3)), blocks - still.volume.used_blocks)
        still.entry(LIVE, f"item {number}", size, 10 ** rng.uniform(2, 7))
        number += 1
    return still


@pytest.mark.parametrize("block", range(4))
def test_invariants_14_and_15_eviction_stops_at_low_and_takes_the_oldest(block: int) -> None:
    for seed in range(block * 50, block * 50 + 50):
        still = filled(seed, 71 + seed % 29)
        before = still.ages()
        still.passes()
        kept = still.ages()
        gone = {path: age for path, age in before.items() if path not in kept}
        eligible = {path: age for path, age in kept.items() if age > 1800 + 1}
        assert all(age > 1800 for age in gone.values()), seed
        assert still.volume.used_blocks <= 50 or not eligible, seed
        if eligible and gone:
            assert still.volume.used_blocks > 50 - 3 - 1, seed  # one entry more than needed, at most
            assert max(eligible.values()) <= min(gone.values()) * (1 + 2 * BUCKET), seed


def test_invariant_14_eviction_does_not_begin_below_high() -> None:
    for seed in range(50):
        still = filled(seed, 70)
        before = still.ages()
        still.passes()
        assert still.ages().keys() == before.keys(), seed


def test_invariant_18_a_full_disk_is_emptied() -> None:
    still = Still(names_need_room=True)
    still.passes()  # makes its places and spare files while there is room
    still.record(DEAD)
    number = 0
    while still.volume.used_blocks < still.capacity:
        still.entry((LIVE, DEAD)[number % 2], f"{number}", 1, 5000)
        number += 1
    still.passes()
    assert still.volume.used_blocks <= 50 + 1
    still.now += 601
    still.passes()
    assert DEAD not in still.files.listdir("/")
    assert still.files.listdir(f"/{layout.HOUSEKEEPING}/{layout.TRASH}") == []


def test_invariant_18_a_version_is_condemned_and_removed_on_a_full_disk() -> None:
    still = Still(names_need_room=True, policy={"high_percent": 99, "low_percent": 98, "min_idle": 10**9})
    still.passes()
    still.record(DEAD)
    number = 0
    while still.volume.used_blocks < still.capacity:
        still.entry(DEAD, f"{number}", 1, 5000)
        number += 1
    assert still.passes().condemned == (DEAD,)
    still.now += 601
    assert still.passes().removed_versions == 1
    assert still.volume.used_blocks < 10


def test_invariant_19_a_dry_run_changes_nothing_but_the_probe() -> None:
    still = filled(7, 95)
    still.record(DEAD)
    still.entry(DEAD, "a", 1, 10**6)
    still.policy = {"dry_run": True, "version_grace": 0.0, "entry_ttl": 2000.0}

    def all_of_it() -> dict[str, tuple[int, int, int, int]]:
        return {
            path: (inode.number, inode.mtime, inode.nlink, len(inode.data))
            for path, inode in everything(still.volume.root)
            if not path.startswith(f"/{layout.HOUSEKEEPING}/{layout.PROBE}")
        } | {f"/{layout.HOUSEKEEPING}": (0, 0, 0, 0)}

    before = all_of_it()
    result = still.passes()
    assert all_of_it() == before
    assert len(result.victims) > 1
    assert (result.removed_entries, result.freed_bytes) == (0, 0)


class Endless(Files):
    """Files whose one shard has a given number of entries, made as they are read."""

    entries = 0

    def scandir(self, path: Any = ".") -> Any:
        scan = super().scandir(path)
        inode = self._description(path).inode
        return Stream(scan, self.entries) if layout.SHARD_PATTERN.fullmatch(inode.name) else scan

    def stat(self, path: Any, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> Stat:
        if isinstance(path, str) and path.endswith(layout.ENTRY_SUFFIX):
            found = super().stat(".", dir_fd=dir_fd)
            found.st_mode, found.st_nlink, found.st_blocks, found.st_mtime = 0o100660, 1, 8, EPOCH / 1e9
            return found
        return super().stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)


class Stream:
    """What scandir gives: names only."""

    def __init__(self, scan: Any, number: int) -> None:
        self.scan, self.number = scan, number

    def __enter__(self) -> Iterator[Any]:
        return (Name(f"{number:064x}{layout.ENTRY_SUFFIX}") for number in range(self.number))

    def __exit__(self, *error: object) -> None:
        self.scan.close()


@dataclass
class Name:
    name: str

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return False


def peak(entries: int) -> int:
    """Return the most memory that a pass over so many entries took, in bytes."""
    still = Still(capacity=10**9)
    still.files.mkdir(f"/{LIVE}/ab")
    still.files.__class__ = Endless
    still.files.entries = entries  # type: ignore[attr-defined]
    tracemalloc.start()
    result = still.passes()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.entries == entries
    return most


def test_invariant_20_memory_does_not_grow_with_the_entries() -> None:
    peak(10_000)  # imports and caches
    assert peak(80_000) - peak(10_000) < 64 * 1024


def test_invariant_21_each_inode_is_counted_once() -> None:
    still = Still()
    path = still.entry(LIVE, "a", 3, 100)
    still.entry(LIVE, "b", 2, 100)
    still.record(DEAD)
    still.entry(DEAD, "c", 5, 5000)
    pins = f"/{layout.HOUSEKEEPING}/{layout.PINS}"
    for directory in ("", "/pod", "/pod/nonce"):
        still.files.mkdir(pins + directory)
    still.write(f"{pins}/pod/nonce/{layout.HEARTBEAT}", b"")
    for number in (1, 2):
        still.files.link(path, f"{pins}/pod/nonce/{number}")
    assert still.passes().used_bytes == 10 * BLOCK
    still.files.unlink(path)  # only the pins keep it now
    still.now += 200  # an earlier count would serve under pressure, for two minutes
    assert still.passes().used_bytes == 10 * BLOCK
