"""The end of a history: all is well, one collector goes on, and what is left must be what the protocol promises."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from epd.collector.result import PassResult
from epd.connector import layout
from histories.cluster import FOREIGN_VERSIONS
from histories.collectors import passes
from histories.memory_tree import BLOCK, Inode, everything
from histories.oracle import TEMPORARY_AGE
from histories.process import Habits, Process

if TYPE_CHECKING:
    from histories.world import World

WAIT = TEMPORARY_AGE + 100.0
"""Seconds between two passes: longer than any age that something must reach."""
LEAST_PASSES = 3
"""To condemn, to rename and reap, to find nothing."""
MOST_PASSES = 6
"""One more to believe that nobody is left, one for what a pin held, one to be sure."""


def settle(world: World) -> None:
    """Let one collector make passes until nothing is left to do, and judge the rest."""
    results: list[PassResult | None] = []

    def work(process: Process) -> None:
        try:
            go_on(process)
        except Exception as error:
            world.oracle.check(16, False, f"the last collector raised {error!r}")
        world.over = True

    def go_on(process: Process) -> None:
        make_pass = passes(world, process)
        process.sleep(1.0)
        while len(results) < MOST_PASSES:
            result = make_pass()
            while result is not None and result.more:
                result = make_pass()
            results.append(result)
            if len(results) >= LEAST_PASSES and result is not None and result.liveness_valid and not any(done(result)):
                break
            process.sleep(WAIT)

    world.over = False
    process = Process(world.schedule, "collector", "settler", world.host.root, Habits())
    process.actor = world.schedule.spawn("settler", lambda: work(process))
    world.schedule.run(lambda: world.over)
    world.schedule.finish()
    if not world.cluster.epds or not results or not _founded(world):
        return  # nobody uses the claim, or it was full before its first pass
    result = results[-1]
    world.oracle.check(4, result is not None and result.liveness_valid, "no valid answer although all is well")
    if result is not None and result.liveness_valid:
        _judge(world, result)


def done(result: PassResult) -> tuple[object, ...]:
    """Return what a pass changed."""
    return result.removed_entries, result.removed_versions, result.condemned, result.renamed, result.absolved


def _founded(world: World) -> bool:
    """Tell whether a pass ever had the room for what it needs: an owner, and places for marks and trash."""
    house = _child(world.volume.root, layout.HOUSEKEEPING)
    parts = [_child(house, part) for part in (layout.OWNER, layout.CONDEMNED, layout.TRASH, layout.VERSIONS, "spare")]
    owner, *_, spare = parts
    if owner is None or spare is None or None in parts:
        return False
    return bool(spare.children) and json.loads(owner.data)["claimUid"] == world.cluster.claim_uid


def _judge(world: World, result: PassResult) -> None:
    oracle, policy = world.oracle, dict(world.scenario.policy)
    for inode, what in oracle.foreign.items():
        oracle.check(2, inode.nlink > 0, f"gone, although not ours: {what}")
    if not policy.get("enabled", True) or policy.get("dryRun") or world.scenario.hostile:
        return
    oracle.check(16, not any(done(result)), f"the last pass still did {done(result)}")
    if not world.scenario.damage:  # a record that somebody damaged makes nothing ours
        _versions(world)
        _housekeeping(world)
        _usage(world, result)


def _child(directory: Inode | None, name: str) -> Inode | None:
    return (directory.children or {}).get(name) if directory is not None else None


def _recorded(world: World) -> list[str]:
    """Return our versions whose record is there and whole; without it, nothing may be done to them."""
    records = _child(_child(world.volume.root, layout.HOUSEKEEPING), layout.VERSIONS)
    found = {version: _child(records, layout.record_name(version)) for version in sorted(world.oracle.ours)}
    return [version for version, record in found.items() if record is not None and record.data.endswith(b"}\n")]


def _versions(world: World) -> None:
    oracle, root = world.oracle, world.volume.root
    for version in _recorded(world):
        directory = _child(root, version)
        if version in FOREIGN_VERSIONS:
            continue
        if version not in world.cluster.live:
            oracle.check(22, directory is None, f"{version} is dead and still there")
        elif directory is not None and version not in oracle.example:
            left = [path for path, _ in everything(directory) if f"/{layout.TEMPORARY_PREFIX}" in path]
            oracle.check(22, not left, f"temporary files stay in {version}: {left}")


def _housekeeping(world: World) -> None:
    oracle = world.oracle
    house = _child(world.volume.root, layout.HOUSEKEEPING)
    for part in (layout.CONDEMNED, layout.TRASH, layout.PINS):
        directory = _child(house, part)
        found = [path for path, inode in everything(directory) if inode not in oracle.foreign] if directory else []
        found = [path for path in found if path.strip("/") not in FOREIGN_VERSIONS]
        oracle.check(22, not found, f"{part} still has {found}")
    versions = _child(house, layout.VERSIONS)
    torn = [name for name in (versions.children if versions else None) or () if name.startswith(".")]
    oracle.check(22, not torn, f"temporary records stay: {torn}")


def _entries(world: World) -> Iterator[tuple[str, Inode]]:
    """Yield the files of our versions, with the version of each."""
    for version in _recorded(world):
        directory = _child(world.volume.root, version)
        if directory is None or directory.children is None or directory in world.oracle.foreign:
            continue
        for _, inode in everything(directory):
            if inode.children is None and not inode.is_symlink and inode not in world.oracle.foreign:
                yield version, inode


def _usage(world: World, result: PassResult) -> None:
    """Everything was unused for longer than minIdle: whatever may go has gone, if there was too much."""
    oracle, volume, policy = world.oracle, world.volume, dict(world.scenario.policy)
    entries = [
        (version, inode)
        for version, inode in _entries(world)
        if version not in oracle.example or inode.name == layout.EXAMPLE_ENTRY  # its temporary files are not looked for
    ]
    used = sum(len(inode.pages) for inode in {inode for _, inode in entries})
    high = volume.capacity_blocks * policy["highWatermarkPercent"]
    movable = [inode for version, inode in entries if version not in oracle.example and inode.pages]
    if volume.used_blocks * 100 > high and (volume.used_blocks - used) * 100 < high:
        oracle.check(14, not movable, f"above high, with {len(movable)} entries that nobody uses")
    if not oracle.example and not world.scenario.damage:
        said = result.used_bytes
        oracle.check(21, said == used * BLOCK, f"{said} bytes told, {used * BLOCK} used")
