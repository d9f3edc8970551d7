"""Stores over directories of tests: a version with its record, one entry, and what a reader gets of it."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from epd.connector import layout
from epd.connector.store import Expectation, Reason, Record, Rejected, Shape, Store, StoreError
from unit.clocks import Clock

VERSION = "v1-m-0123456789ab"
RECORD = Record(
    version=VERSION, claim="ns/claim", layout="Managed", inputs={"model": "m"}, created="2026-01-01T00:00:00Z"
)
SHAPE = Shape(dtype="BF16", rows=3, width=4)
PAYLOAD = bytes(range(SHAPE.nbytes))
OTHER = bytes(reversed(PAYLOAD))
NAME = "../a picture"
WANTED = Expectation(identifier=NAME, rows=3, width=4, dtype="BF16")
ERRORS = [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES, errno.ESTALE, errno.EIO, errno.ENOENT, errno.ENOTDIR]
LONG_AGO = 1_000_000_000


def opened(root: Path, files: Any = os, **changes: Any) -> Store:
    """A store without a record yet, whose names a test can foretell."""
    numbers = itertools.count()
    given = {"stamp_seconds": 60.0, "pod": "pod", "nonce": lambda: f"{next(numbers)}", "clock": Clock()} | changes
    return Store(str(root), VERSION, files=files, **given)


def prepared(root: Path, files: Any = os, **changes: Any) -> Store:
    """A store with record and directory; files are watched from then on."""
    made = opened(root, files, **changes)
    if files is os:
        made.prepare(RECORD)
    else:
        files.armed = False
        made.prepare(RECORD)
        files.armed = True
    return made


def outcome(action: Callable[[], object]) -> object:
    """What an action returns, or how it was refused."""
    try:
        return action()
    except (Rejected, StoreError) as refusal:
        return refusal


def fetched(root: Path, expectation: Expectation = WANTED, files: Any = os) -> bytes:
    buffers: list[bytearray] = []

    def into(shape: Shape) -> memoryview:
        buffers.append(bytearray(shape.nbytes))
        return memoryview(buffers[0])

    opened(root, files).fetch(expectation, into)
    return bytes(buffers[0])


def reason(root: Path, expectation: Expectation = WANTED, files: Any = os) -> Reason:
    with pytest.raises(Rejected) as rejected:
        fetched(root, expectation, files)
    return rejected.value.reason


def usable(root: Path) -> bytes | Reason:
    """What a reader gets: the payload, or why not."""
    try:
        return fetched(root)
    except Rejected as rejected:
        return rejected.reason


def entry(root: Path) -> Path:
    return Path(opened(root).path(NAME))


def temporaries(root: Path) -> list[Path]:
    return sorted(root.rglob(f"{layout.TEMPORARY_PREFIX}*"))


def error_of(made: Store, payload: bytes = PAYLOAD, shape: Shape = SHAPE) -> StoreError:
    with pytest.raises(StoreError) as error:
        made.publish(NAME, payload, shape)
    return error.value
