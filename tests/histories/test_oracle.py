"""Whom the judge of histories finds guilty, where somebody moves a directory away while an engine writes in it."""

from __future__ import annotations

import os
import random
from types import SimpleNamespace

import pytest

from epd.connector import layout
from histories.cluster import Cluster
from histories.memory_fs import Files
from histories.memory_tree import Inode, Volume
from histories.oracle import Oracle
from histories.process import Habits, Process
from histories.schedule import Schedule

SHARD, MOVED = "/v1-live-0123456789ab/25", "/moved"
TEMPORARY = f"{layout.TEMPORARY_PREFIX}0001"


class Scene:
    """An engine that has begun to write, and a shard that somebody moves away and links back."""

    def __init__(self) -> None:
        self.schedule = Schedule(random.Random(0), most_steps=1)
        self.volume = Volume(lambda: 0)
        self.oracle = Oracle(Cluster(self.schedule), self.volume)
        self.hands = Files(self.volume.root)
        self.hands.mkdir("/v1-live-0123456789ab")
        self.hands.mkdir(SHARD)

    def process(self, kind: str) -> Process:
        return Process(self.schedule, kind, kind, self.volume.root, Habits())

    def begin(self, engine: Process, name: str) -> Inode:
        inode = self.file(f"{SHARD}/{name}")
        engine.facts["created"] = {inode}
        return inode

    def file(self, path: str) -> Inode:
        fd = self.hands.open(path, os.O_CREAT | os.O_WRONLY, 0o660)
        inode = self.hands.inode_of(fd)
        self.hands.close(fd)
        return inode

    def move(self, *inodes: Inode) -> None:
        self.hands.rename(SHARD, MOVED)
        self.hands.symlink(MOVED, SHARD)
        self.oracle.foreign.update(dict.fromkeys(inodes, "moved"))

    def engine_unlinks(self, engine: Process, name: str) -> list[tuple[int, str]]:
        parent, _, inode = self.hands.find(f"{SHARD}/{name}")
        assert inode is not None
        self.oracle.engine_unlinks(engine, parent, name, inode)
        return self.oracle.violations


def test_an_engine_removes_its_own_temporary_file() -> None:
    scene = Scene()
    engine = scene.process("engine")
    temporary = scene.begin(engine, TEMPORARY)
    scene.move(temporary)
    assert scene.engine_unlinks(engine, TEMPORARY) == []
    assert temporary not in scene.oracle.foreign  # or its absence would be held against somebody at the end


@pytest.mark.parametrize("name", [TEMPORARY, "entry.safetensors"])
def test_an_engine_removes_nothing_of_others(name: str) -> None:
    scene = Scene()
    engine = scene.process("engine")
    theirs = scene.file(f"{SHARD}/{name}")
    scene.move(theirs)
    [(invariant, text)] = scene.engine_unlinks(engine, name)
    assert invariant == 2
    assert name in text


def test_an_engine_does_not_remove_what_it_published_once_that_is_not_ours() -> None:
    scene = Scene()
    engine = scene.process("engine")
    entry = scene.begin(engine, "entry.safetensors")
    scene.move(entry)
    assert [invariant for invariant, _ in scene.engine_unlinks(engine, "entry.safetensors")] == [2]


def test_a_collector_does_not_remove_it() -> None:
    scene = Scene()
    temporary = scene.begin(scene.process("engine"), TEMPORARY)
    scene.move(temporary)
    collector = scene.process("collector")
    parent, _, inode = scene.hands.find(f"{MOVED}/{TEMPORARY}")
    assert inode is temporary
    collector.facts["policy"] = SimpleNamespace(dry_run=False)
    scene.oracle.witness(collector)(collector.files, "unlink", parent, TEMPORARY, temporary)
    assert 2 in [invariant for invariant, _ in scene.oracle.violations]
