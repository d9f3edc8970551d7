"""What is on the volumes of a history before its first program starts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from epd.connector import layout
from histories.cluster import CLAIM, FOREIGN_VERSIONS, NAMESPACE
from histories.engines import IDENTIFIERS, ROOT
from histories.memory_tree import Volume, everything
from histories.schedule import EPOCH, SECOND

if TYPE_CHECKING:
    from histories.world import World


def furnish(world: World) -> None:
    """Mount the volumes and put on them what is there before the first program starts."""
    files = world.hands
    for path, volume in ((ROOT, world.volume), ("/outside", world.outside)):
        files.mkdir(path)
        files.mount(path, volume.root)
    for path in ("/outside/secret", "/outside/data"):
        files.mkdir(path)
        files.put(f"{path}/{layout.EXAMPLE_ENTRY}", b"not to be touched")
    for identifier in IDENTIFIERS:
        shard, name = layout.entry_name(identifier)
        files.make(f"/outside/data/{shard}")
        files.put(f"/outside/data/{shard}/{name}")
        files.put(f"/outside/data/{name}")
    if world.scenario.adopts:
        world.cluster.adopts = "root-1"
    if world.scenario.intruder or world.scenario.adopts or world.rng.random() < 0.8:
        _claim_root(world)
    if world.scenario.foreign:
        _strangers(world)
    for _, inode in everything(world.outside.root):
        world.oracle.foreign[inode] = "outside of the root"


def _claim_root(world: World) -> None:
    world.hands.make(f"{ROOT}/{layout.HOUSEKEEPING}")
    owner = {"format": 1, "rootId": "root-1", "claimUid": "claim-1", "claim": f"{NAMESPACE}/{CLAIM}", "former": []}
    if world.scenario.adopts:
        owner |= {"claimUid": "claim-0", "claim": f"{NAMESPACE}/old"}
    world.hands.put(f"{ROOT}/{layout.HOUSEKEEPING}/{layout.OWNER}", json.dumps(owner | {"created": ""}).encode())
    left = f"{ROOT}/{layout.HOUSEKEEPING}/{layout.TEMPORARY_PREFIX}left-over"
    world.hands.put(left)
    world.hands.utime(left, ns=(EPOCH - 7200 * SECOND, EPOCH - 7200 * SECOND))


def _record(world: World, version: str, claim: str) -> None:
    world.hands.make(f"{ROOT}/{layout.HOUSEKEEPING}/{layout.VERSIONS}")
    record = {"format": 1, "version": version, "claim": claim, "layout": "Managed", "inputs": {}, "created": ""}
    world.hands.put(
        f"{ROOT}/{layout.HOUSEKEEPING}/{layout.VERSIONS}/{layout.record_name(version)}",
        json.dumps(record).encode() + b"\n",
    )


def _strangers(world: World) -> None:
    """What is not ours, in all places where it may lie."""
    files = world.hands
    stranger, theirs, linked, mounted = FOREIGN_VERSIONS
    for version in (stranger, theirs, mounted):
        files.make(f"{ROOT}/{version}/ab")
    mount = Volume(world.server_now)
    files.mount(f"{ROOT}/{mounted}", mount.root)
    files.make(f"{ROOT}/{mounted}/ab")
    files.make(f"{ROOT}/models/deep")
    files.make(f"{ROOT}/{layout.HOUSEKEEPING}/{layout.TRASH}/lost+found")
    entry = f"ab/{'ab' * 32}{layout.ENTRY_SUFFIX}"
    for path in (
        f"{stranger}/{entry}",
        f"{theirs}/{entry}",
        f"{mounted}/{entry}",
        "models/deep/weights",
        f"{layout.HOUSEKEEPING}/{layout.TRASH}/lost+found/{layout.EXAMPLE_ENTRY}",
        "README",
    ):
        files.put(f"{ROOT}/{path}")
    files.symlink("/outside/data", f"{ROOT}/{linked}")
    _record(world, theirs, "other/cache")
    for version in (linked, mounted):
        _record(world, version, f"{NAMESPACE}/{CLAIM}")
        world.oracle.ours.add(version)
    for _, inode in everything(mount.root):
        world.oracle.foreign[inode] = "on another mount"
    house = (world.volume.root.children or {})[layout.HOUSEKEEPING]
    for path, inode in everything(world.volume.root):
        if layout.HOUSEKEEPING not in path:
            world.oracle.foreign[inode] = f"foreign: {path}"
    for path, inode in everything(house):
        if "lost+found" in path:
            world.oracle.foreign[inode] = f"foreign: {path}"
