"""Entries in a claim's folder, as tests find, damage and forge them: the Managed connector's, and vLLM's own.

Works on files of this machine; asks no engine and no API server.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from epd.connector import entry, layout
from epd.connector.entry import Parsed, Shape

UNREADABLE = 0o000


def path(store: Path, version: str, identifier: str) -> Path:
    """Where an entry lies."""
    return store.joinpath(version, *layout.entry_name(identifier))


def example_path(store: Path, version: str, identifier: str) -> Path:
    """Where vLLM's ECExampleConnector puts one, with an identifier that stays in the store."""
    return store / version / identifier / layout.EXAMPLE_ENTRY


def read(file: Path) -> tuple[Parsed, bytes]:
    """Header and tensor of a good entry."""
    content = file.read_bytes()
    parsed = entry.parse(content, len(content))
    return parsed, content[parsed.offset :]


def write(file: Path, identifier: str, version: str, shape: Shape, payload: bytes) -> None:
    """Put an entry that is right in itself in the place of another one, readable by all."""
    temporary = file.with_name(".tmp-forged")
    temporary.write_bytes(entry.header(identifier, version, shape, entry.checksum(payload)) + payload)
    temporary.chmod(0o664)
    temporary.rename(file)


def seal(file: Path, identifier: str, version: str) -> None:
    """Give an entry of ECExampleConnector, which has a tensor alone, our header, so that `DAMAGE` fits it.

    That connector reads the tensor and nothing else, so it takes the entry as it takes its own.
    """
    content = file.read_bytes()
    offset = entry.payload_offset(content, len(content))
    told = json.loads(content[entry.LENGTH_BYTES : offset])[entry.TENSOR]
    rows, width = told["shape"]
    write(file, identifier, version, Shape(dtype=told["dtype"], rows=rows, width=width), content[offset:])


def exchange(file: Path, other: Path) -> None:
    """Give an entry another one's tensor, so that only who reads the store sees it."""
    parsed, _ = read(file)
    donor, payload = read(other)
    write(file, parsed.identifier, parsed.version, donor.shape, payload)


def remove(folder: Path) -> None:
    """Remove a folder that a test has put aside."""
    shutil.rmtree(folder)


def _forged(file: Path, *, payload: Callable[[bytes, Shape], bytes] | None = None, **changes: object) -> None:
    parsed, tensor = read(file)
    shape = replace(parsed.shape, **{key: value for key, value in changes.items() if key in {"dtype", "rows", "width"}})
    write(
        file,
        str(changes.get("identifier", parsed.identifier)),
        str(changes.get("version", parsed.version)),
        shape,
        payload(tensor, shape) if payload else tensor,
    )


def _fit(tensor: bytes, shape: Shape) -> bytes:
    return (tensor * 2)[: shape.nbytes]


def _fewer_rows(file: Path) -> None:
    rows = read(file)[0].shape.rows
    _forged(file, rows=rows - 1, payload=_fit)


def _more_rows(file: Path) -> None:
    rows = read(file)[0].shape.rows
    _forged(file, rows=rows + 1, payload=_fit)


def _width(file: Path) -> None:
    width = read(file)[0].shape.width
    _forged(file, width=width * 2, payload=_fit)


def _dtype(file: Path) -> None:
    _forged(file, dtype="BF16", payload=_fit)


def _checksum(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def _torn(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def _unreadable(file: Path) -> None:
    os.chown(file, 0, 0)
    file.chmod(UNREADABLE)


def _directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _symlink(file: Path) -> None:
    target = file.with_name("elsewhere")
    file.rename(target)
    file.symlink_to(target.name)


def _fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o666)


HOSTILE = ("../../../../../../tmp/{}", "/tmp/{}", "/tmp/{}/../{}", "a:{}", "{}\u0000x")
"""Identifiers, with a mark for {}, that must not become a path as they are."""

DAMAGE: Mapping[str, tuple[Callable[[Path], None], str]] = {
    "absent": (Path.unlink, ""),
    "torn": (_torn, "torn"),
    "empty": (lambda file: os.truncate(file, 0), "empty"),
    "too few rows": (_fewer_rows, "rows"),
    "too many rows": (_more_rows, "rows"),
    "wrong width": (_width, "width"),
    "wrong dtype": (_dtype, "dtype"),
    "other version": (lambda file: _forged(file, version="v1-other-0123456789ab"), "version"),
    "other identifier": (lambda file: _forged(file, identifier="other"), "identifier"),
    "flipped bit": (_checksum, "checksum"),
    "unreadable": (_unreadable, "unreadable"),
    "directory in its place": (_directory, "not_regular"),
    "symlink in its place": (_symlink, "not_regular"),
    "fifo in its place": (_fifo, "not_regular"),
}
"""What can befall an entry -> what does it, and the reason for which the connector must reject it (empty: a plain
miss)."""
