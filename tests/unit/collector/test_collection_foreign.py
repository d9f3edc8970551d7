"""Whole passes: what is not the claim's own, or leads out of its root, is left alone.

Numbers in names are the invariants of the collection protocol.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from epd.api.names import Reason
from epd.collector.inputs import Claim
from epd.collector.result import Cause
from unit.collector.tree import CLAIM, DEAD, LIVE, Tree, policy, reasons


def test_02_nothing_without_our_record_is_touched(tree: Tree) -> None:
    strange = "v1-strange-00000000000c"
    other, unreadable, newer = (f"v1-{name}-00000000000d" for name in ("other", "torn", "newer"))
    tree.record(other, claim="ns/other")
    tree.record(unreadable).write_text("{")
    tree.record(newer, format=2)
    kept = [tree.entry(version, "a") for version in (strange, other, unreadable, newer)]
    kept.append(tree.file("photos/holiday.jpg"))
    for version in (strange, other, unreadable, newer):
        tree.condemn(version)

    result = tree.collect(policy(entry_ttl=1, min_idle=1, version_grace=0))

    assert all(path.exists() for path in kept)
    assert (result.renamed, result.removed_entries, result.condemned) == ((), 0, ())
    assert result.foreign_entries >= len(kept)


def test_02_unknown_names_in_ours_are_kept_where_they_fall(tree: Tree) -> None:
    tree.dead()
    tree.file(f"{DEAD}/notes.txt")
    tree.aged(tree.file(f"{DEAD}/backup/{'a' * 64}.safetensors").parent, 7200)
    tree.file(f"{DEAD}/ab/README")

    result = tree.collect()

    (name,) = tree.trash()
    left = {
        str(path.relative_to(tree.path / ".epd-gc" / "trash" / name))
        for path in tree.path.rglob("*")
        if name in str(path) and path.is_file()
    }
    assert left == {"notes.txt", f"backup/{'a' * 64}.safetensors", "ab/README"}
    assert result.removed == {Cause.DEAD_VERSION: 3}


def test_root_of_another_claim_is_left_alone_in_every_way(tree: Tree) -> None:
    root_id = tree.collect().root_id
    tree.dead()
    before = tree.names()
    other = Claim(name="other/cache", uid="uid-2")

    result = tree.collect(claim=other)

    assert (result.owned, reasons(result)) == (False, [Reason.ROOT_OWNED_BY_ANOTHER_CLAIM])
    assert tree.names() == before
    assert tree.asked == 1

    adopting = tree.collect(claim=Claim(name="other/cache", uid="uid-2", adopts=root_id))

    assert (adopting.owned, adopting.renamed) == (True, (DEAD,))
    assert adopting.root_id != root_id
    assert tree.collect(claim=Claim(name=CLAIM.name, uid=CLAIM.uid, adopts=root_id)).owned is False


def test_01_symlinks_lead_nowhere(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> None:
    """1: whatever the tree links to stays, and so do the links."""
    outside = tmp_path_factory.mktemp("outside")
    victim = outside / f"{'a' * 64}.safetensors"
    victim.write_bytes(b"x")
    tree.aged(victim, 10**6)
    tree.dead()
    tree.entry(LIVE, "young", age=5)
    (tree.path / ".epd-gc" / "trash").mkdir()
    (tree.path / LIVE / "f1").mkdir()
    directories = [tree.path / LIVE / "f0", tree.path / DEAD / "f0", tree.path / ".epd-gc" / "trash" / f"{DEAD}.x"]
    directories.append(tree.path / "v1-linked-00000000000f")
    tree.record("v1-linked-00000000000f")
    for link in directories:
        link.symlink_to(outside)
    file = tree.path / LIVE / "f1" / victim.name
    file.symlink_to(victim)
    tree.aged(file, 10**6)

    result = tree.collect(policy(entry_ttl=60))

    assert os.listdir(outside) == [victim.name]
    assert result.removed == {Cause.DEAD_VERSION: 3}
    (left,) = (tree.path / ".epd-gc" / "trash").glob(f"{DEAD}.*[!x]")
    assert all(link.is_symlink() for link in (directories[0], left / "f0", directories[2], directories[3], file))


def test_housekeeping_that_is_a_symlink_stops_everything(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (tmp_path / ".epd-gc").symlink_to(outside)

    result = Tree(tmp_path).collect()

    assert (reasons(result), result.owned, os.listdir(outside)) == ([Reason.COLLECTION_FAILED], False, [])
