"""Whole passes: versions that nobody uses are condemned, and removed after their grace.

Numbers in names are the invariants of the collection protocol.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from epd.api.names import Reason
from epd.collector.inputs import Declaration
from epd.collector.result import Cause, Spared, State
from unit.collector.tree import DEAD, LIVE, Tree, Wrapped, policy, reasons


def test_dead_version_is_condemned_then_removed_after_its_grace(tree: Tree) -> None:
    """22: progress; 16: each step is made by a collector that knows nothing but the names."""
    tree.record(DEAD)
    entry, kept = tree.entry(DEAD, "a"), tree.entry(LIVE, "b")

    first = tree.collect()

    assert (first.condemned, first.renamed, entry.exists()) == ((DEAD,), (), True)
    assert {facts.name: facts.state for facts in first.versions} == {LIVE: State.LIVE, DEAD: State.CONDEMNED}
    tree.aged(tree.path / ".epd-gc" / "condemned" / DEAD, 3590)
    assert tree.collect().renamed == ()
    tree.aged(tree.path / ".epd-gc" / "condemned" / DEAD, 3610)

    last = tree.collect()

    assert (last.renamed, last.removed, last.removed_versions) == ((DEAD,), {Cause.DEAD_VERSION: 1}, 1)
    assert (last.removed_entries, last.freed_bytes, last.trash_bytes) == (1, 4096, 0)
    assert not (tree.path / DEAD).exists()
    assert tree.trash() == []
    assert os.listdir(tree.path / ".epd-gc" / "condemned") == []
    assert (tree.path / ".epd-gc" / "versions" / f"{DEAD}.json").exists()
    assert kept.exists()


def test_03_version_that_lives_again_before_the_rename_is_absolved(tree: Tree) -> None:
    tree.dead()

    def back(asked: int) -> None:
        if asked == 2:
            tree.live[DEAD] = ("llava",)

    tree.on_ask = back
    result = tree.collect()

    assert (result.renamed, result.absolved) == ((), (DEAD,))
    assert (tree.path / DEAD).exists()
    assert not (tree.path / ".epd-gc" / "condemned" / DEAD).exists()


def test_03_directory_that_is_another_one_at_the_rename_is_kept(tree: Tree) -> None:
    tree.dead()

    def swap(asked: int) -> None:
        if asked == 2:
            (tree.path / DEAD).rename(tree.path / "elsewhere")
            tree.entry(DEAD, "new", age=0)

    tree.on_ask = swap
    result = tree.collect()

    assert (result.renamed, result.spared.get(Spared.CHANGED)) == ((), 1)
    assert (tree.path / DEAD).exists()


def test_04_without_a_valid_list_nothing_changes(tree: Tree) -> None:
    tree.collect()
    tree.dead()
    tree.record("v1-fresh-00000000000e")
    tree.entry("v1-fresh-00000000000e", "a")
    tree.entry(LIVE, "old", age=10**6)
    tree.valid = False
    before = tree.names()

    result = tree.collect(policy(entry_ttl=60, min_idle=1))

    after = tree.names()
    assert {name for name in before if before[name] != after.get(name)} <= {".epd-gc/probe/me"}
    assert before.keys() == after.keys()
    assert reasons(result) == [Reason.LIVENESS_UNKNOWN]


def test_04_a_list_that_waited_too_long_is_not_acted_on(tree: Tree) -> None:
    tree.dead()
    stale = tree.ask()
    tree.now += 301

    assert tree.collect(ask=lambda: stale).renamed == ()
    assert tree.collect().renamed == (DEAD,)


def test_04_trash_goes_on_without_a_valid_list(tree: Tree) -> None:
    tree.entry(f".epd-gc/trash/{DEAD}.abc", "a")
    tree.valid = False

    assert tree.collect().removed == {Cause.DEAD_VERSION: 1}
    assert tree.trash() == []


def test_expedited_versions_skip_the_grace_only(tree: Tree) -> None:
    tree.record(DEAD)
    entry = tree.entry(DEAD, "a", age=1)
    pin = tree.pin(entry)
    tree.expedited = frozenset({DEAD})

    assert tree.collect().renamed == ()
    pin.unlink()
    assert tree.collect().renamed == (DEAD,)


@pytest.mark.parametrize("pinned", [True, False])
def test_version_used_within_its_grace_is_a_strangers(tree: Tree, pinned: bool) -> None:
    tree.dead()
    entry = tree.entry(DEAD, "used", age=7200 if pinned else 3000)
    if pinned:
        os.link(entry, tree.path / "pin")

    result = tree.collect()

    assert (result.renamed, reasons(result)) == ((), [Reason.VERSION_IN_USE_BY_STRANGER])
    assert result.spared == {Spared.PINNED if pinned else Spared.FRESH: 1}
    assert entry.exists()


def test_07_pinned_bytes_outlive_their_version(tree: Tree) -> None:
    entry = tree.entry(f".epd-gc/trash/{DEAD}.abc", "a")
    entry.write_bytes(b"tensor")
    pin = tree.pin(entry)

    result = tree.collect()

    assert (pin.read_bytes(), entry.exists(), result.pins, result.freed_bytes) == (b"tensor", False, 1, 0)


def test_records_of_live_versions_are_written_where_engines_cannot(tree: Tree) -> None:
    tree.declared = {DEAD: Declaration(layout="Example", inputs={"model": "m"})}
    entry = tree.example(DEAD, "abc")
    tree.collect()
    assert not (tree.path / ".epd-gc" / "versions" / f"{DEAD}.json").exists()

    tree.live[DEAD] = ()
    result = tree.collect()

    assert (tree.path / ".epd-gc" / "versions" / f"{DEAD}.json").exists()
    assert {facts.name: facts.entries for facts in result.versions}[DEAD] == 1
    assert entry.exists()


def test_versions_of_one_pass_leave_in_constant_time(tree: Tree) -> None:
    """The rename is one call, whatever lies below it: nothing is unlinked before it."""
    tree.dead(entries=50)
    calls: list[str] = []

    def rename(*args: Any, **kwargs: Any) -> None:
        calls.append(f"rename {args[0]}")
        os.rename(*args, **kwargs)

    def unlink(path: Any, **kwargs: Any) -> None:
        calls.append("unlink")
        os.unlink(path, **kwargs)

    tree.collect(files=Wrapped(rename=rename, unlink=unlink))

    assert calls.index(f"rename {DEAD}") < len(calls) - 50
    assert "unlink" not in [call for call in calls[: calls.index(f"rename {DEAD}")] if len(call) == 76]
