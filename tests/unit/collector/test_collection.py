"""Whole passes over real trees. Numbers in names are the invariants of the collection protocol."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from epd.api.names import Reason
from epd.collector.inputs import Claim, Declaration
from epd.collector.pace import BATCH
from epd.collector.result import Cause, Spared, State, Victim
from unit.collector.tree import CLAIM, DEAD, LIVE, POLICY, Tree, Wrapped, policy


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.record(LIVE)
    return tree


def reasons(result: Any) -> list[Reason]:
    return [trouble.reason for trouble in result.troubles]


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


def test_a_version_that_changed_its_connector_is_evicted_from_by_names_not_by_its_record(tree: Tree) -> None:
    tree.record(LIVE, layout="Example")
    ours, vllms = tree.entry(LIVE, "a"), tree.example(LIVE, "mm_hash")

    result = tree.collect(policy(entry_ttl=3600))

    assert (ours.exists(), vllms.exists(), result.removed) == (False, True, {Cause.TTL: 1})
    assert tree.collect(policy(entry_ttl=3600, evict_example=True)).removed == {Cause.TTL: 1}


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
    pin = tree.path / ".epd-gc" / "pins" / "pod-1" / "n" / "1"
    pin.parent.mkdir(parents=True)
    os.link(entry, pin)
    tree.file(".epd-gc/pins/pod-1/n/heartbeat", age=1)
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
    pin = tree.path / ".epd-gc" / "pins" / "pod-1" / "n" / "1"
    pin.parent.mkdir(parents=True)
    os.link(entry, pin)
    tree.file(".epd-gc/pins/pod-1/n/heartbeat", age=1)

    result = tree.collect()

    assert (pin.read_bytes(), entry.exists(), result.pins, result.freed_bytes) == (b"tensor", False, 1, 0)


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


def test_21_each_inode_is_counted_once(tree: Tree) -> None:
    entry = tree.entry(LIVE, "a", size=8192)
    tree.entry(LIVE, "b", size=4096)
    orphan = tree.file("orphan", size=4096)
    pins = tree.path / ".epd-gc" / "pins" / "pod-1" / "n"
    pins.mkdir(parents=True)
    tree.file(".epd-gc/pins/pod-1/n/heartbeat", age=1, size=0)
    os.link(entry, pins / "1")
    os.link(entry, pins / "2")
    orphan.rename(pins / "3")

    result = tree.collect()

    assert (result.used_bytes, result.pins, result.entries) == (8192 + 4096 + 4096, 3, 2)


def test_21_trash_counts_until_it_is_gone(tree: Tree) -> None:
    tree.entry(f".epd-gc/trash/{DEAD}.abc", "a", size=8192)

    result = tree.collect(policy(enabled=False))

    assert (result.used_bytes, result.trash_bytes) == (8192, 8192)
    assert [(facts.name, facts.state, facts.entries) for facts in result.versions] == [(DEAD, State.TRASH, 1)]
    assert tree.collect().trash_bytes == 0


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


@pytest.mark.parametrize(("allowed", "kept"), [(False, True), (True, False)])
def test_example_entries_of_live_versions_go_only_if_asked_for(tmp_path: Path, allowed: bool, kept: bool) -> None:
    tree = Tree(tmp_path)
    tree.record(LIVE, layout="Example")
    entry, bare = tree.example(LIVE, "abc"), tmp_path / LIVE / "bare"
    bare.mkdir()

    tree.collect(policy(entry_ttl=60, evict_example=allowed))

    assert (entry.exists(), bare.exists(), entry.parent.exists()) == (kept, True, True)


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
