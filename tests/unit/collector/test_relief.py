from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from epd.collector.result import Cause
from unit.collector.tree import CLAIM, DEAD, LIVE, Tree, Wrapped, policy

A, B = frozenset({LIVE}), frozenset({DEAD})


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.record(LIVE)
    tree.record(DEAD)
    tree.live[DEAD] = ()
    return tree


def test_max_size_of_one_object_frees_only_its_own_versions(tree: Tree) -> None:
    mine = [tree.entry(LIVE, str(number), age=9000 + number) for number in range(10)]
    others = [tree.entry(DEAD, str(number), age=10**6) for number in range(10)]

    result = tree.collect(policy(max_sizes=((A, 10 * 4096), (B, 100 * 4096))))

    assert (sum(path.exists() for path in mine), sum(path.exists() for path in others)) == (7, 10)
    assert result.removed == {Cause.MAX_SIZE: 3}


def test_ttl_before_watermark(tree: Tree) -> None:
    """What age frees need not be freed by size."""
    for number in range(10):
        tree.entry(LIVE, str(number), age=10**6 if number < 4 else 9000)

    result = tree.collect(policy(entry_ttl=86400, max_sizes=((A, 10 * 4096),)))

    assert result.removed == {Cause.TTL: 4}


def test_19_dry_run_lists_no_entry_twice(tree: Tree) -> None:
    for number in range(12):
        tree.entry(LIVE, str(number), age=10**6 if number < 2 else 9000 + number)

    result = tree.collect(policy(dry_run=True, entry_ttl=86400, max_sizes=((A, 10 * 4096),)))

    assert result.removed == {Cause.TTL: 2, Cause.MAX_SIZE: 3}
    assert len({victim.path for victim in result.victims}) == 5


def test_inodes_are_freed_like_bytes(tree: Tree) -> None:
    entries = [tree.entry(LIVE, str(number), age=9000 + 1000 * number) for number in range(90)]

    def fstatvfs(fd: int) -> os.statvfs_result:
        free = 100 - sum(path.exists() for path in entries)
        return os.statvfs_result((4096, 4096, 10**6, 10**6, 10**6, 100, free, free, 0, 255))

    result = tree.collect(files=Wrapped(fstatvfs=fstatvfs))

    assert (result.removed, [path.exists() for path in entries]) == (
        {Cause.WATERMARK: 20},
        [True] * 70 + [False] * 20,
    )


def test_a_crossing_is_answered_from_the_last_scan(tree: Tree) -> None:
    """The first byte is freed without scanning first."""
    entries = [tree.entry(LIVE, str(number), age=9000 + 1000 * number) for number in range(90)]
    free = [50]

    def fstatvfs(fd: int) -> os.statvfs_result:
        now = free[0] + 90 - sum(path.exists() for path in entries)
        return os.statvfs_result((4096, 4096, 100, now, now, 0, 0, 0, 0, 255))

    collection = tree.collection(files=Wrapped(fstatvfs=fstatvfs))
    told: Any = policy()
    assert collection.run(CLAIM, told).rescanned
    free[0] = 10
    result = collection.run(CLAIM, told)

    assert (result.rescanned, result.removed, result.entries) == (False, {Cause.WATERMARK: 20}, 70)
    assert result.more is False


def test_what_was_written_since_the_last_scan_is_not_taken_for_foreign(tree: Tree) -> None:
    """A volume that fills within the life of a scan is relieved all the same."""
    entries = [tree.entry(LIVE, str(number), age=9000 + 1000 * number) for number in range(2)]

    def fstatvfs(fd: int) -> os.statvfs_result:
        free = 100 - sum(path.exists() for path in entries)
        return os.statvfs_result((4096, 4096, 100, free, free, 0, 0, 0, 0, 255))

    collection = tree.collection(files=Wrapped(fstatvfs=fstatvfs))
    collection.run(CLAIM, policy())
    entries += [tree.entry(LIVE, str(number), age=9000 + 1000 * number) for number in range(2, 90)]

    result = collection.run(CLAIM, policy())

    assert (result.rescanned, result.removed, result.troubles) == (True, {Cause.WATERMARK: 20}, ())


def test_a_scan_that_no_longer_serves_is_made_anew(tree: Tree) -> None:
    """All that the last scan saw was used since: the next pass begins at once, and scans."""
    entries = [tree.entry(LIVE, str(number)) for number in range(90)]
    free = [50]

    def fstatvfs(fd: int) -> os.statvfs_result:
        return os.statvfs_result((4096, 4096, 100, free[0], free[0], 0, 0, 0, 0, 255))

    collection = tree.collection(files=Wrapped(fstatvfs=fstatvfs))
    collection.run(CLAIM, policy())
    free[0] = 10
    for entry in entries:
        tree.aged(entry, 5)

    first, second = collection.run(CLAIM, policy()), collection.run(CLAIM, policy())

    assert (first.rescanned, first.more, first.removed_entries) == (False, True, 0)
    assert (second.rescanned, second.more) == (True, False)
