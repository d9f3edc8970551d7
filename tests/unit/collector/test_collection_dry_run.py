"""Whole passes that are to delete nothing.

Numbers in names are the invariants of the collection protocol.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from epd.collector.inputs import Declaration
from epd.collector.result import Cause, Victim
from unit.collector.tree import DEAD, LIVE, Tree, policy


def test_19_dry_run_changes_nothing_but_the_probe(tree: Tree) -> None:
    tree.collect()
    tree.dead(entries=2)
    tree.entry(LIVE, "old", age=10**6)
    tree.file(f"{LIVE}/ab/.tmpx", age=10**5)
    before = tree.names()

    result = tree.collect(policy(dry_run=True, entry_ttl=86400))

    after = tree.names()
    assert before.keys() == after.keys()
    assert {name for name in before if before[name] != after[name]} <= {".epd-gc/probe/me"}
    assert [(victim.cause, victim.used_bytes) for victim in result.victims] == [
        (Cause.DEAD_VERSION, 2 * 4096),
        (Cause.TTL, 4096),
        (Cause.TEMPORARY, 4096),
    ]
    assert (result.removed_entries, result.freed_bytes, result.entries) == (0, 0, 3)
    assert result.removed == {Cause.DEAD_VERSION: 2, Cause.TTL: 1, Cause.TEMPORARY: 1}


def test_19_dry_run_names_versions_that_are_not_condemned_yet(tree: Tree) -> None:
    tree.record(DEAD)
    tree.entry(DEAD, "a", age=60)

    (victim,) = tree.collect(policy(dry_run=True)).victims

    assert victim == Victim(path=DEAD, cause=Cause.DEAD_VERSION, used_bytes=4096, age=victim.age)
    assert victim.age == pytest.approx(60, abs=5)


def test_19_dry_run_lists_what_a_record_that_it_does_not_write_would_make_ours(tree: Tree) -> None:
    tree.declared = {LIVE: Declaration(layout="Example"), DEAD: Declaration(layout="Example")}
    entry = tree.example(LIVE, "old", age=10**6)
    tree.example(DEAD, "old", age=10**6)
    (tree.path / ".epd-gc" / "probe").mkdir(parents=True)
    before = tree.names()

    result = tree.collect(policy(dry_run=True, entry_ttl=86400, evict_example=True))

    (victim,) = result.victims
    assert (victim.path, victim.cause) == (str(entry.relative_to(tree.path)), Cause.TTL)
    assert [(version.name, version.entries) for version in result.versions] == [(LIVE, 1)]
    assert tree.names().keys() - before.keys() == {".epd-gc/probe/me"}


def test_dry_run_on_a_root_without_housekeeping_makes_none(tmp_path: Path) -> None:
    result = Tree(tmp_path).collect(policy(dry_run=True))

    assert (result.owned, os.listdir(tmp_path)) == (True, [])


def test_disabled_collection_deletes_nothing(tree: Tree) -> None:
    tree.dead()
    tree.entry(f".epd-gc/trash/{DEAD}.abc", "a")
    before = {name for name in tree.names() if "probe" not in name}

    result = tree.collect(policy(enabled=False, entry_ttl=1))

    assert {name for name in tree.names() if "probe" not in name} == before
    assert (result.removed_entries, result.renamed) == (0, ())
