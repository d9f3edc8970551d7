"""What befalls an entry's file, and what a step loads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def symlink(path: Path) -> None:
    path.rename(path.with_suffix(".other"))
    path.symlink_to(path.with_suffix(".other"))


def text(path: Path) -> None:
    path.write_text("no safetensors at all")


DAMAGE = [
    (truncate, "torn"),
    (empty, "empty"),
    (flip, "checksum"),
    (directory, "not_regular"),
    (symlink, "not_regular"),
    (text, "header"),
    (Path.unlink, None),
]


def loads(output: Any) -> list[str]:
    """Identifiers that a step loads."""
    return [load.identifier for load in output.ec_connector_metadata.step.loads]
