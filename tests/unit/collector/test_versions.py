from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from epd.collector.result import Spared
from epd.collector.versions import SPARES
from unit.collector.tree import CLAIM, DEAD, LIVE, POLICY, Tree, Wrapped, policy


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.record(LIVE)
    tree.record(DEAD)
    tree.entry(DEAD, "a")
    return tree


def mark(tree: Tree) -> Path:
    return tree.path / ".epd-gc" / "condemned" / DEAD


def test_each_rename_is_asked_anew(tree: Tree) -> None:
    tree.condemn(DEAD)
    other = "v1-other-00000000000c"
    tree.record(other)
    tree.entry(other, "a")
    tree.condemn(other)

    assert sorted(tree.collect().renamed) == sorted([DEAD, other])
    assert tree.asked == 3


def test_condemning_is_asked_anew_once_for_all(tree: Tree) -> None:
    tree.on_ask = lambda asked: tree.live.update({DEAD: ()}) if asked == 2 else None

    assert (tree.collect().condemned, mark(tree).exists(), tree.asked) == ((), False, 2)


def test_mark_is_dated_when_it_is_made(tree: Tree) -> None:
    """Also one that was a spare file, made long ago: its age would pass for the mark's."""
    tree.live[DEAD] = ()
    tree.collect()
    spares = tree.path / ".epd-gc" / "spare"
    assert len(os.listdir(spares)) == SPARES
    for spare in spares.iterdir():
        tree.aged(spare, 10**6)
    del tree.live[DEAD]

    def opened(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if path == DEAD and flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, "full")
        return os.open(path, flags, *args, **kwargs)

    files = Wrapped(open=opened)
    collection = tree.collection(files=files)
    assert collection.run(CLAIM, POLICY).condemned == (DEAD,)
    assert collection.run(CLAIM, POLICY).renamed == ()
    assert mark(tree).exists()


def test_mark_that_another_collector_made_keeps_its_date(tree: Tree) -> None:
    tree.on_ask = lambda asked: tree.condemn(DEAD, age=500) if asked == 2 else None
    tree.collect()
    before = mark(tree).stat().st_mtime

    tree.on_ask = None
    assert tree.collect().condemned == ()
    assert mark(tree).stat().st_mtime == before


def test_version_that_cannot_be_read_in_full_is_kept(tree: Tree) -> None:
    tree.condemn(DEAD)

    def stat(path: Any, **kwargs: Any) -> os.stat_result:
        if len(path) == 76:
            raise OSError(errno.EIO, "broken")
        return os.stat(path, **kwargs)

    assert tree.collect(files=Wrapped(stat=stat)).renamed == ()


def test_mark_of_a_directory_that_is_gone_is_taken_away(tree: Tree) -> None:
    """What a crash between rename and unlink of the mark leaves."""
    tree.condemn(DEAD)
    (tree.path / DEAD).rename(tree.path / "gone")

    assert (tree.collect().absolved, mark(tree).exists()) == ((DEAD,), False)


def test_rename_dates_the_record(tree: Tree) -> None:
    """A record outlives its directory by 30 days from now on."""
    tree.condemn(DEAD)
    record = tree.aged(tree.path / ".epd-gc" / "versions" / f"{DEAD}.json", 10**7)

    assert tree.collect().renamed == (DEAD,)
    assert record.exists()
    tree.aged(record, 31 * 86400)
    tree.collect()
    assert not record.exists()


def test_another_mount_in_a_versions_place_is_not_renamed(tree: Tree) -> None:
    tree.condemn(DEAD)

    def rename(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.EBUSY, "a mount point")

    result = tree.collect(files=Wrapped(rename=rename))

    assert (result.renamed, dict(result.errors)) == ((), {("rename", "EBUSY"): 1})
    assert (tree.path / DEAD).exists()


def test_another_file_system_in_a_versions_place_is_no_version(tree: Tree) -> None:
    tree.condemn(DEAD)

    def stat(path: Any, **kwargs: Any) -> os.stat_result:
        found = os.stat(path, **kwargs)
        return os.stat_result([*found[:2], found.st_dev + 1, *found[3:]]) if path == DEAD else found

    result = tree.collect(files=Wrapped(stat=stat))

    assert (result.condemned, result.renamed, dict(result.errors)) == ((), (), {})
    assert (tree.path / DEAD).exists()


def test_grace_is_what_an_entry_must_have_rested(tree: Tree) -> None:
    tree.condemn(DEAD)
    tree.entry(DEAD, "b", age=3599)
    assert tree.collect().spared == {Spared.FRESH: 1}
    assert tree.collect(policy(version_grace=3000)).renamed == (DEAD,)


def test_pins_of_pods_that_have_just_ended_are_no_strangers(tree: Tree) -> None:
    pinned = tree.entry(DEAD, "pinned")
    (tree.path / "pin").hardlink_to(pinned)
    tree.expedited = frozenset({DEAD})

    result = tree.collect()

    assert (result.renamed, result.spared[Spared.PINNED], result.troubles) == ((), 1, ())
