"""Whole passes over real trees, whatever comes between their steps.

Numbers in names are the invariants of the collection protocol.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from epd.api.names import Reason
from epd.collector.pace import BATCH
from epd.collector.result import Cause
from unit.collector.tree import CLAIM, DEAD, LIVE, POLICY, Tree, Wrapped, policy, reasons


def test_16_a_crash_at_any_call_changes_no_outcome(tmp_path: Path) -> None:
    """16: whatever call a collector dies at, the next one ends in the same names."""

    def run(crash_at: int) -> tuple[bool, set[str]]:
        path = tmp_path / str(crash_at)
        path.mkdir()
        tree = Tree(path)
        tree.record(LIVE)
        tree.dead()
        tree.entry(LIVE, "old", age=10**6)
        kept = tree.entry(LIVE, "young", age=5)
        calls = [0]

        def crashing(call: Any) -> Any:
            def called(*args: Any, **kwargs: Any) -> Any:
                calls[0] += 1
                if calls[0] == crash_at:
                    raise KeyboardInterrupt
                return call(*args, **kwargs)

            return called

        names = ("open", "stat", "mkdir", "unlink", "rmdir", "rename", "link", "utime", "scandir")
        files = Wrapped(**{name: crashing(getattr(os, name)) for name in names})
        crashed = False
        try:
            tree.collect(policy(entry_ttl=86400), files=files, nonce=lambda: "n1")
        except KeyboardInterrupt:
            crashed = True
        tree.collect(policy(entry_ttl=86400))
        tree.aged(mark, 7200) if (mark := path / ".epd-gc" / "condemned" / DEAD).exists() else None
        tree.collect(policy(entry_ttl=86400))
        assert kept.exists()
        ignored = (".tmp", "n1")
        return crashed, {name for name in tree.names() if not any(part in name for part in ignored)}

    _, expected = run(0)
    crashed, number = True, 0
    while crashed:
        number += 1
        crashed, names = run(number)
        assert names == expected, f"crash at call {number}"
    assert number > 50


def test_17_two_collectors_end_as_one(tree: Tree) -> None:
    """17: the second one runs wholly between the first one's last question and its rename."""
    tree.dead()
    second = tree.collection(ask=lambda: Tree.ask(other))
    other = Tree(tree.path)
    results = []

    def overtaken(asked: int) -> None:
        if asked == 2:
            results.append(second.run(CLAIM, POLICY))

    tree.on_ask = overtaken
    results.append(tree.collect())

    assert [result.renamed for result in results] == [(DEAD,), ()]
    assert [dict(result.errors) for result in results] == [{}, {}]
    assert tree.trash() == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_18_a_full_disk_is_still_freed(tree: Tree, number: int) -> None:
    """18: no call that needs room succeeds, yet a version is condemned, and later gone."""
    tree.collect()
    tree.record(DEAD)
    tree.entry(DEAD, "a")
    old = tree.entry(LIVE, "old", age=10**6)

    def full(*args: Any, **kwargs: Any) -> Any:
        raise OSError(number, os.strerror(number))

    def opened(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_CREAT and not Path(f"/proc/self/fd/{kwargs['dir_fd']}", path).exists():
            full()
        return os.open(path, flags, *args, **kwargs)

    files = Wrapped(open=opened, mkdir=full, link=full, write=full, fsync=full)
    first = tree.collect(policy(entry_ttl=86400), files=files, name="new")

    assert (first.condemned, first.removed, old.exists()) == ((DEAD,), {Cause.TTL: 1}, False)
    tree.aged(tree.path / ".epd-gc" / "condemned" / DEAD, 7200)
    assert tree.collect(files=files, name="new").removed == {Cause.DEAD_VERSION: 1}


def test_clock_that_jumps_stops_what_is_told_by_it(tree: Tree) -> None:
    tree.dead()
    tree.live[DEAD] = ()
    old = tree.entry(LIVE, "old", age=86400)
    collection = tree.collection()
    collection.run(CLAIM, POLICY)
    tree.now += 10**6

    result = collection.run(CLAIM, policy(entry_ttl=60))

    assert (reasons(result), old.exists()) == ([Reason.CLOCK_UNRELIABLE], True)


def test_stop_ends_a_pass_at_its_next_batch(tree: Tree) -> None:
    for number in range(200):
        tree.entry(f".epd-gc/trash/{DEAD}.abc", str(number))
    stopped: list[bool] = []

    def unlink(path: Any, **kwargs: Any) -> None:
        os.unlink(path, **kwargs)
        if len(path) == 76:
            stopped.append(True)

    result = tree.collect(files=Wrapped(unlink=unlink), stopping=lambda: bool(stopped))

    assert 0 < result.removed_entries <= BATCH
    assert not result.more
    assert tree.collect().removed_entries == 200 - result.removed_entries


def test_a_pass_resumes_without_counting_anew(tree: Tree) -> None:
    for number in range(200):
        tree.entry(f".epd-gc/trash/{DEAD}.abc", str(number))
    collection = tree.collection(rate=10.0)
    results = [collection.run(CLAIM, POLICY)]
    while results[-1].more:
        results.append(collection.run(CLAIM, POLICY))

    assert sum(result.removed_entries for result in results) == 200
    assert [result.rescanned for result in results] == [True] + [False] * (len(results) - 1)
    assert results[-1].used_bytes == 0
