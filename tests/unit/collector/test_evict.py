from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from epd.collector.evict import Eviction, Rule
from epd.collector.files import Files, KernelFiles
from epd.collector.histogram import Histogram
from epd.collector.ledger import Ledger
from epd.collector.pace import Pace
from epd.collector.result import Cause, Spared
from unit.collector.tree import LIVE, Tree, Wrapped


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def evict(
    tree: Tree, *, example: bool = False, files: Files | None = None, clock: Any = None, **changed: Any
) -> Ledger:
    now, ledger = time.time(), Ledger()
    rule = Rule(**({"cause": Cause.TTL, "idle_before": now - 3600, "reference": Histogram(now)} | changed))
    pace = Pace(1e9, clock=lambda: 0.0, sleep=tree.sleep, stopping=lambda: False)
    pace.begin(10.0)
    root = os.open(tree.path, os.O_RDONLY)
    try:
        Eviction(
            files=files or KernelFiles(),
            device=os.fstat(root).st_dev,
            ledger=ledger,
            pace=pace,
            clock=clock or (lambda: 0.0),
            now=now,
            dry_run=False,
            example=example,
            gone=lambda version, stamp, size: None,
        ).evict(LIVE, rule, root=root)
    finally:
        os.close(root)
    return ledger


def test_a_check_that_is_too_old_is_worth_nothing(tree: Tree) -> None:
    """A process that was paused between look and unlink does not unlink."""
    entry = tree.entry(LIVE, "a")
    paused = iter([0.0, 0.051])
    ledger = evict(tree, clock=lambda: next(paused))
    assert (entry.exists(), dict(ledger.spared)) == (True, {Spared.SLOW: 1})

    prompt = iter([0.0, 0.049])
    assert evict(tree, clock=lambda: next(prompt)).removed == {Cause.TTL: 1}
    assert not entry.exists()


def test_10_entry_stamped_or_pinned_before_the_look_stays(tree: Tree) -> None:
    stamped, pinned, old = (tree.entry(LIVE, name) for name in "abc")

    def stat(path: Any, **kwargs: Any) -> os.stat_result:
        if path == stamped.name:
            os.utime(stamped)
        if path == pinned.name and not (tree.path / "pin").exists():
            os.link(pinned, tree.path / "pin")
        return os.stat(path, **kwargs)

    ledger = evict(tree, files=Wrapped(stat=stat))

    assert (stamped.exists(), pinned.exists(), old.exists()) == (True, True, False)
    assert dict(ledger.spared) == {Spared.PINNED: 1}


@pytest.mark.parametrize("example", [False, True])
def test_only_known_names_go_and_those_of_vllms_connector_if_allowed(tree: Tree, example: bool) -> None:
    entries = [tree.entry(LIVE, "a"), tree.example(LIVE, "id")]
    kept = [
        tree.file(f"{LIVE}/ab/{'A' * 64}.safetensors"),
        tree.file(f"{LIVE}/abc/{'a' * 64}.safetensors"),
        tree.file(f"{LIVE}/id/other.safetensors"),
        tree.file(f"{LIVE}/{'b' * 64}.safetensors"),
    ]

    assert evict(tree, example=example).removed == {Cause.TTL: 1 + example}
    assert [entry.exists() for entry in entries] == [False, not example]
    assert all(path.exists() for path in kept)
    assert (tree.path / LIVE / "id").is_dir()


def test_01_example_directory_that_became_a_symlink_is_not_followed(tree: Tree, tmp_path: Path) -> None:
    entry = tree.example(LIVE, "id")
    outside = tree.example("elsewhere", "id")

    def stat(path: Any, **kwargs: Any) -> os.stat_result:
        status = os.stat(path, **kwargs)
        if not entry.parent.is_symlink():
            entry.unlink()
            entry.parent.rmdir()
            entry.parent.symlink_to(outside.parent)
        return status

    ledger = evict(tree, example=True, files=Wrapped(stat=stat))

    assert (outside.exists(), dict(ledger.removed), dict(ledger.spared)) == (True, {}, {Spared.FOREIGN: 1})
