from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from epd.collector.files import Files, KernelFiles
from epd.collector.ledger import Ledger
from epd.collector.pace import Pace
from epd.collector.result import Cause, Spared
from epd.collector.trash import Purge, is_ours, version_of
from unit.collector.tree import DEAD, Tree, Wrapped

NAME = f"{DEAD}.n1"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def purge(tree: Tree, *, files: Files | None = None, rate: float = 1e9, seconds: float = 10.0) -> tuple[bool, Ledger]:
    pace = Pace(rate, clock=lambda: tree.now, sleep=tree.sleep, stopping=lambda: False)
    pace.begin(seconds)
    ledger = Ledger()
    fd = os.open(tree.path, os.O_RDONLY)
    try:
        return Purge(files or KernelFiles(), os.fstat(fd).st_dev, ledger, pace).purge(NAME, dir_fd=fd), ledger
    finally:
        os.close(fd)


def test_both_layouts_go(tree: Tree) -> None:
    tree.entry(NAME, "a")
    tree.file(f"{NAME}/ab/.tmpx")
    tree.example(NAME, "id")
    tree.example(NAME, "nested/id")
    (tree.path / NAME / "bare").mkdir()

    gone, ledger = purge(tree)

    assert (gone, os.listdir(tree.path), ledger.removed) == (True, [], {Cause.DEAD_VERSION: 4})
    assert ledger.freed == {Cause.DEAD_VERSION: 4 * 4096}


def test_13_a_directory_with_something_in_it_stays(tree: Tree) -> None:
    tree.entry(NAME, "a")
    kept = tree.file(f"{NAME}/ab/.nfs000123")

    gone, ledger = purge(tree)

    assert (gone, kept.exists(), ledger.spared[Spared.FOREIGN], dict(ledger.errors)) == (False, True, 1, {})


def test_07_a_pinned_file_frees_nothing(tree: Tree) -> None:
    os.link(tree.entry(NAME, "a"), tree.path / "pin")

    gone, ledger = purge(tree)

    assert (gone, ledger.freed[Cause.DEAD_VERSION], (tree.path / "pin").stat().st_size) == (True, 0, 4096)


def test_17_another_collector_in_the_same_directory_is_no_error(tree: Tree) -> None:
    for number in range(10):
        tree.entry(NAME, str(number))

    def unlink(path: str, **kwargs: Any) -> None:
        os.unlink(path, **kwargs)
        raise FileNotFoundError(errno.ENOENT, "the other one was faster")

    gone, ledger = purge(tree, files=Wrapped(unlink=unlink))

    assert (gone, dict(ledger.errors), dict(ledger.removed)) == (True, {}, {Cause.DEAD_VERSION: 0})


def test_spent_slice_is_resumed(tree: Tree) -> None:
    for number in range(300):
        tree.entry(NAME, str(number))

    gone, ledger = purge(tree, rate=64.0, seconds=1.5)
    assert not gone
    assert 0 < ledger.removed[Cause.DEAD_VERSION] < 300

    left = 300 - ledger.removed[Cause.DEAD_VERSION]
    gone, ledger = purge(tree)
    assert (gone, ledger.removed[Cause.DEAD_VERSION]) == (True, left)


@pytest.mark.parametrize(
    ("name", "version"),
    [(NAME, DEAD), (DEAD, None), (f"{DEAD}.", None), ("lost+found", None), ("../x.y", None)],
)
def test_version_of(name: str, version: str | None) -> None:
    assert version_of(name) == version


def test_is_ours() -> None:
    entry = f"{'a' * 64}.safetensors"

    assert is_ours(entry, in_shard=True)
    assert not is_ours(entry, in_shard=False)
    assert is_ours("encoder_cache.safetensors", in_shard=False)
    assert is_ours(".tmpabc", in_shard=False)
    assert not is_ours("model.safetensors", in_shard=True)
