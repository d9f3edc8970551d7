"""Whole passes: entries of live versions, by age, by use and by the room that there is.

Numbers in names are the invariants of the collection protocol.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from epd.api.names import Reason
from epd.collector.result import Cause, Spared, State
from unit.collector.tree import DEAD, LIVE, Tree, Wrapped, policy, reasons


def test_a_version_that_changed_its_connector_is_evicted_from_by_names_not_by_its_record(tree: Tree) -> None:
    tree.record(LIVE, layout="Example")
    ours, vllms = tree.entry(LIVE, "a"), tree.example(LIVE, "mm_hash")

    result = tree.collect(policy(entry_ttl=3600))

    assert (ours.exists(), vllms.exists(), result.removed) == (False, True, {Cause.TTL: 1})
    assert tree.collect(policy(entry_ttl=3600, evict_example=True)).removed == {Cause.TTL: 1}


def test_10_entries_used_within_min_idle_stay(tree: Tree) -> None:
    young, old = tree.entry(LIVE, "young", age=1790), tree.entry(LIVE, "old", age=1810)

    tree.collect(policy(entry_ttl=60))

    assert (young.exists(), old.exists()) == (True, False)


def test_10_pinned_entries_stay(tree: Tree) -> None:
    entry = tree.entry(LIVE, "a")
    os.link(entry, tree.path / "pin")
    tree.entry(LIVE, "b")

    result = tree.collect(policy(entry_ttl=60))

    assert (entry.exists(), result.removed, result.spared) == (True, {Cause.TTL: 1}, {Spared.PINNED: 1})


def test_10_entry_of_the_future_stays(tree: Tree) -> None:
    entry = tree.entry(LIVE, "a", age=-86400)

    tree.collect(policy(entry_ttl=60, min_idle=1))

    assert entry.exists()


def test_11_entry_made_anew_is_decided_on_by_itself(tree: Tree) -> None:
    entry = tree.entry(LIVE, "a")

    def stat(path: Any, **kwargs: Any) -> os.stat_result:
        status = os.stat(path, **kwargs)
        if path == entry.name and not swapped:
            swapped.append(path)
            entry.unlink()
            tree.entry(LIVE, "a", age=0)
        return status

    swapped: list[str] = []
    tree.collect(policy(entry_ttl=60), files=Wrapped(stat=stat))

    assert swapped
    assert entry.exists()


def test_14_15_watermark_evicts_the_oldest_and_stops_at_low(tree: Tree) -> None:
    entries = [tree.entry(LIVE, str(number), age=7200 + 1000 * number) for number in range(20)]

    result = tree.collect(policy(max_sizes=((frozenset({LIVE}), 20 * 4096),)))

    assert [path.exists() for path in entries] == [True] * 14 + [False] * 6
    assert (result.removed, result.used_bytes) == ({Cause.MAX_SIZE: 6}, 14 * 4096)


def test_14_nothing_goes_below_high(tree: Tree) -> None:
    entries = [tree.entry(LIVE, str(number)) for number in range(17)]

    tree.collect(policy(max_sizes=((frozenset({LIVE}), 20 * 4096),)))

    assert all(path.exists() for path in entries)


def volume(used: int, capacity: int, *, inodes: int = 0) -> Any:
    """A volume of 4 KiB blocks, all of whose use beyond `used` goes with entries."""

    def fstatvfs(fd: int) -> os.statvfs_result:
        free = capacity - used
        return os.statvfs_result((4096, 4096, capacity, free, free, inodes, inodes, inodes, 0, 255))

    return fstatvfs


def test_14_volume_above_high_is_freed_down_to_low(tree: Tree) -> None:
    entries = [tree.entry(LIVE, str(number), age=7200 + 1000 * number) for number in range(90)]

    def fstatvfs(fd: int) -> os.statvfs_result:
        return volume(sum(path.exists() for path in entries), 100)(fd)

    result = tree.collect(files=Wrapped(fstatvfs=fstatvfs))

    assert [path.exists() for path in entries] == [True] * 70 + [False] * 20
    assert (result.removed, result.over_watermark, result.troubles) == ({Cause.WATERMARK: 20}, False, ())


def test_foreign_bytes_never_evict_ours(tree: Tree) -> None:
    entries = [tree.entry(LIVE, str(number)) for number in range(5)]

    result = tree.collect(files=Wrapped(fstatvfs=volume(95, 100)))

    assert all(path.exists() for path in entries)
    assert (reasons(result), result.over_watermark) == ([Reason.FOREIGN_DATA_DOMINATES], True)


def test_usage_that_cannot_be_lowered_is_told(tree: Tree) -> None:
    for number in range(90):
        tree.entry(LIVE, str(number), age=10)

    result = tree.collect(files=Wrapped(fstatvfs=volume(90, 100)))

    assert (reasons(result), result.removed_entries) == ([Reason.OVER_WATERMARK], 0)


def test_21_each_inode_is_counted_once(tree: Tree) -> None:
    entry = tree.entry(LIVE, "a", size=8192)
    tree.entry(LIVE, "b", size=4096)
    orphan = tree.file("orphan", size=4096)
    tree.pin(entry, "1")
    orphan.rename(tree.pin(entry, "2").with_name("3"))

    result = tree.collect()

    assert (result.used_bytes, result.pins, result.entries) == (8192 + 4096 + 4096, 3, 2)


def test_21_trash_counts_until_it_is_gone(tree: Tree) -> None:
    tree.entry(f".epd-gc/trash/{DEAD}.abc", "a", size=8192)

    result = tree.collect(policy(enabled=False))

    assert (result.used_bytes, result.trash_bytes) == (8192, 8192)
    assert [(facts.name, facts.state, facts.entries) for facts in result.versions] == [(DEAD, State.TRASH, 1)]
    assert tree.collect().trash_bytes == 0


@pytest.mark.parametrize(("allowed", "kept"), [(False, True), (True, False)])
def test_example_entries_of_live_versions_go_only_if_asked_for(tmp_path: Path, allowed: bool, kept: bool) -> None:
    tree = Tree(tmp_path)
    tree.record(LIVE, layout="Example")
    entry, bare = tree.example(LIVE, "abc"), tmp_path / LIVE / "bare"
    bare.mkdir()

    tree.collect(policy(entry_ttl=60, evict_example=allowed))

    assert (entry.exists(), bare.exists(), entry.parent.exists()) == (kept, True, True)
