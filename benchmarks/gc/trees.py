"""Roots as connectors leave them, and the collector of them with everything around it answered at once."""

from __future__ import annotations

import json
import math
import os
import time
from typing import Any, Final

from epd.collector.collection import Collection
from epd.collector.inputs import Claim, Layout, Liveness, Policy
from epd.connector import layout

LIVE: Final = "v1-live-00000000000a"
DEAD: Final = "v1-dead-00000000000b"
CLAIM: Final = Claim(name="bench/cache", uid="uid")
AGE: Final = 86400.0
"""Seconds since the last use of the oldest entry; the others lie between it and `YOUNGEST`."""
YOUNGEST: Final = 7200.0
POLICY: Final = Policy(
    enabled=True, dry_run=False, version_grace=3600, entry_ttl=None, min_idle=1800, high_percent=85, low_percent=70
)


def version(root: str, name: str, entries: int, *, of: Layout = "Managed", size: int = 100) -> str:
    """Write a version with its record; the small entries of gc.md, whose bytes cost nothing. Returns its path."""
    path = f"{root}/{name}"
    record = {"format": 1, "version": name, "claim": CLAIM.name, "layout": of, "inputs": {}, "created": ""}
    versions = f"{root}/{layout.HOUSEKEEPING}/{layout.VERSIONS}"
    os.makedirs(versions, exist_ok=True)
    with open(f"{versions}/{layout.record_name(name)}", "w", encoding="ascii") as file:
        json.dump(record, file)
    os.mkdir(path)
    fd = os.open(path, os.O_RDONLY)
    try:
        _fill(fd, entries, of, b"x" * size)
    finally:
        os.close(fd)
    return path


def _fill(fd: int, entries: int, of: Layout, content: bytes) -> None:
    now = time.time()
    if of == "Managed":
        for shard in range(256):
            os.mkdir(f"{shard:02x}", dir_fd=fd)
    for number in range(entries):
        shard, name = layout.entry_name(str(number))
        if of == "Managed":
            path = f"{shard}/{name}"
        else:
            os.mkdir(name.removesuffix(layout.ENTRY_SUFFIX), dir_fd=fd)
            path = f"{name.removesuffix(layout.ENTRY_SUFFIX)}/{layout.EXAMPLE_ENTRY}"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o660, dir_fd=fd)
        os.write(file, content)
        age = YOUNGEST + (AGE - YOUNGEST) * number / entries
        os.utime(file, (now - age, now - age))
        os.close(file)


def condemn(root: str, name: str) -> None:
    """Mark a version, so long ago that it is due."""
    condemned = f"{root}/{layout.HOUSEKEEPING}/{layout.CONDEMNED}"
    os.makedirs(condemned, exist_ok=True)
    with open(f"{condemned}/{name}", "w", encoding="ascii"):
        pass
    then = time.time() - YOUNGEST
    os.utime(f"{condemned}/{name}", (then, then))


def throw_away(root: str, name: str) -> str:
    """Move a version into the trash; return the trash."""
    trash = f"{root}/{layout.HOUSEKEEPING}/{layout.TRASH}"
    os.makedirs(trash, exist_ok=True)
    os.rename(f"{root}/{name}", f"{trash}/{name}.0")
    return trash


def alive() -> Liveness:
    """Answer as an API server that names `LIVE` alone."""
    return Liveness(valid=True, live={LIVE: ("bench",)}, pods=frozenset(), taken=time.monotonic())


def collection(root: str, **changed: Any) -> Collection:
    """Return the collector, as fast as it goes."""
    arguments: dict[str, Any] = {"name": "bench", "ask": alive, "rate": math.inf}
    return Collection(root, **(arguments | changed))
