from __future__ import annotations

import os
from typing import Any

import pytest

from epd.collector.result import Cause
from unit.collector.tree import DEAD, LIVE, Tree, policy

HOUR, DAY = 3600, 86400


def test_old_temporary_files_go_and_young_ones_stay(tree: Tree) -> None:
    old = [tree.file(f"{LIVE}/ab/.tmp1", age=HOUR + 60), tree.file(".epd-gc/versions/.tmp1", age=HOUR + 60)]
    young = [tree.file(f"{LIVE}/ab/.tmp2", age=HOUR - 60), tree.file(".epd-gc/versions/.tmp2", age=HOUR - 60)]

    result = tree.collect()

    assert [path.exists() for path in (*old, *young)] == [False, False, True, True]
    assert result.removed == {Cause.TEMPORARY: 2}


def test_13_no_directory_of_a_live_version_goes(tree: Tree) -> None:
    empty = tree.path / LIVE / "ab"
    empty.mkdir(parents=True)
    tree.aged(empty, 30 * DAY)

    tree.collect()

    assert empty.is_dir()


def test_probes_of_the_dead_go(tree: Tree) -> None:
    old, young = tree.file(".epd-gc/probe/old", age=DAY + 60), tree.file(".epd-gc/probe/young", age=DAY - 60)

    tree.collect()

    assert (old.exists(), young.exists()) == (False, True)
    assert sorted(os.listdir(tree.path / ".epd-gc" / "probe")) == ["me", "young"]


@pytest.mark.parametrize(("state", "kept"), [("live", True), ("there", True), ("trash", True), ("gone", False)])
def test_record_outlives_its_version_by_30_days(tree: Tree, state: str, kept: bool) -> None:
    widths = tree.file(f".epd-gc/versions/{DEAD}.widths.json", age=31 * DAY)
    record = tree.aged(tree.record(DEAD), 31 * DAY)
    if state == "live":
        tree.live[DEAD] = ()
    if state == "there":
        tree.entry(DEAD, "a", age=5)
    if state == "trash":
        tree.file(f".epd-gc/trash/{DEAD}.n/kept")

    tree.collect()

    assert (record.exists(), widths.exists()) == (kept, kept)


@pytest.mark.parametrize("changed", [{"claim": "ns/other"}, {"format": 2}])
def test_02_records_that_are_not_ours_stay_however_old(tree: Tree, changed: dict[str, Any]) -> None:
    record = tree.aged(tree.record(DEAD, **changed), 60 * DAY)
    widths = tree.file(f".epd-gc/versions/{DEAD}.widths.json", age=60 * DAY)

    tree.collect()

    assert (record.exists(), widths.exists()) == (True, True)


def test_unknown_names_among_records_stay(tree: Tree) -> None:
    kept = [tree.file(f".epd-gc/versions/{name}", age=60 * DAY) for name in ("notes.json", f"{DEAD}.json.bak")]

    tree.collect()

    assert all(path.exists() for path in kept)


def test_without_a_valid_list_nothing_is_swept(tree: Tree) -> None:
    old = tree.file(f"{LIVE}/ab/.tmp1", age=DAY)
    tree.valid = False
    tree.collect()
    assert old.exists()

    tree.valid = True
    tree.collect(policy(enabled=False))
    assert old.exists()
