"""Somebody with write access: puts links, files and directories where entries are, and damages entries."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from epd.connector import layout
from histories.cluster import FOREIGN_VERSIONS
from histories.engines import IDENTIFIERS, ROOT
from histories.memory_tree import everything

if TYPE_CHECKING:
    from histories.world import World


def vandal(world: World) -> None:
    """Somebody with write access: puts links, files and directories where entries are, and damages entries."""

    def ravage() -> None:
        while True:
            world.schedule.wait(world.schedule.log_uniform(5, 900))
            versions = sorted(world.oracle.ours - set(FOREIGN_VERSIONS))
            if versions:
                _ravage(world, world.rng.choice(versions))

    world.schedule.spawn("vandal", ravage)


def _ravage(world: World, version: str) -> None:
    rng, files = world.rng, world.hands
    shard, name = layout.entry_name(rng.choice(IDENTIFIERS))
    directory = f"{ROOT}/{version}/{shard}"
    if rng.random() < 0.1:
        directory, name = f"{ROOT}/{layout.HOUSEKEEPING}/{layout.VERSIONS}", layout.record_name(version)
    try:
        if world.scenario.hostile and rng.random() < 0.5 and layout.HOUSEKEEPING not in directory:
            choice = rng.randrange(4)
            if choice == 0:
                moved = f"{ROOT}/moved-{rng.getrandbits(32)}"
                files.rename(directory, moved)
                _foreign(world, moved)
                files.symlink(rng.choice(("/outside/data", moved)), directory)
                _foreign(world, directory)
            elif choice == 1:
                files.symlink("/outside/secret/encoder_cache.safetensors", f"{directory}/{name}")
                _foreign(world, f"{directory}/{name}")
            elif choice == 2:
                files.make(f"{directory}/{name}")
                files.put(f"{directory}/{name}/inner")
                _foreign(world, f"{directory}/{name}")
            else:
                files.put(f"{directory}/notes-{rng.getrandbits(16)}.txt")
                world.oracle.foreign[files.put(f"{ROOT}/{version}/notes.txt")] = "a note"
            return
        fd = files.open(f"{directory}/{name}", os.O_RDWR)
        try:
            if rng.random() < 0.5:
                files.ftruncate(fd, rng.randrange(2000))
            else:
                files.pwrite(fd, b"damage", rng.randrange(3000))
        finally:
            files.close(fd)
    except OSError:
        return


def _foreign(world: World, path: str) -> None:
    _, _, inode = world.hands.find(path)
    if inode is not None:
        world.oracle.foreign[inode] = f"foreign: {path}"
        if inode.children is not None:
            for below, child in everything(inode):
                if child.is_directory or child.nlink == 1:  # else it is also a pin
                    world.oracle.foreign[child] = f"foreign: {path}{below}"
