"""What an entry's bytes say, and whether they may be used. Pure: bytes in, bytes out; it opens no file.

An entry is a valid safetensors file with one tensor, `ec_cache` of shape [rows, width], and `__metadata__`
{"format", "identifier", "version", "blake3"}. The checksum is of the tensor's bytes alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from blake3 import blake3

from . import layout

TENSOR: Final = "ec_cache"
"""The name vLLM's ECExampleConnector gives its tensor (ec_connector/example_connector.py)."""
LENGTH_BYTES: Final = 8
"""A safetensors file begins with the length of its JSON header, little-endian."""
HEADER_LIMIT: Final = 1 << 20
"""1 MiB. Ours are below 1 KiB plus the identifier; whoever claims more must not make a reader allocate it."""
ITEM_BYTES: Final = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1}
"""Bytes per value of the dtypes an encoder can put out, by their safetensors names."""

_ALIGNMENT: Final = 64
"""A cache line, and what torch aligns its own tensors to."""


class Reason(StrEnum):
    """Why an entry is not used or not written. The values label metrics."""

    ABSENT = "absent"
    EMPTY = "empty"
    TORN = "torn"
    """Shorter than its header says."""
    TRAILING = "trailing"
    """Longer than its header says."""
    HEADER = "header"
    FORMAT = "format"
    IDENTIFIER = "identifier"
    VERSION = "version"
    ROWS = "rows"
    WIDTH = "width"
    DTYPE = "dtype"
    CHECKSUM = "checksum"
    NOT_REGULAR = "not_regular"
    UNREADABLE = "unreadable"
    """Permission denied, for reading or for writing."""
    STALE = "stale"
    """The server no longer knows the file's handle (ESTALE)."""
    TOO_LARGE = "too_large"
    FULL = "full"
    """No space or no quota."""
    READ_ONLY = "read_only"
    IO = "io"


class Rejected(Exception):  # noqa: N818 - an ordinary outcome of looking at a shared volume, not an error of ours
    """An entry that must not be used; to the engine a miss."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)
        self.reason: Final = reason


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """A tensor of `rows` embeddings of `width` values; `dtype` by its safetensors name, such as BF16."""

    dtype: str
    rows: int
    width: int

    @property
    def nbytes(self) -> int:
        """Size of the tensor's bytes. Raises KeyError for a dtype that is not in ITEM_BYTES."""
        return self.rows * self.width * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, kw_only=True, slots=True)
class Expectation:
    """What a request needs. None leaves a property unchecked: the consumer may not know it yet."""

    identifier: str
    rows: int
    width: int | None
    dtype: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Parsed:
    """A header that agrees with itself and with the file's size. `offset` is where the tensor's bytes begin."""

    identifier: str
    version: str
    shape: Shape
    checksum: str
    offset: int


def checksum(payload: bytes | memoryview) -> str:
    """Return the checksum of a tensor's bytes, as the header carries it. Large payloads release the GIL."""
    return blake3(payload).hexdigest()


def written(identifier: str) -> str:
    """Return an identifier as headers carry it: lone surrogates, which no safetensors reader accepts, are escaped."""
    return identifier.encode("utf-8", "backslashreplace").decode()


def header(identifier: str, version: str, shape: Shape, digest: str) -> bytes:
    """Return the first bytes of an entry, up to the tensor; `digest` is the tensor's `checksum`.

    Raises Rejected for what no reader would accept: an unknown dtype, no rows, an identifier of a megabyte.
    """
    if shape.dtype not in ITEM_BYTES:
        raise Rejected(Reason.DTYPE, shape.dtype)
    if shape.rows < 1 or shape.width < 1:
        raise Rejected(Reason.ROWS if shape.rows < 1 else Reason.WIDTH, "empty")
    content = {
        "__metadata__": {
            "format": str(layout.FORMAT),
            "identifier": written(identifier),
            "version": version,
            "blake3": digest,
        },
        TENSOR: {"dtype": shape.dtype, "shape": [shape.rows, shape.width], "data_offsets": [0, shape.nbytes]},
    }
    text = json.dumps(content, separators=(",", ":")).encode()
    text += b" " * (-(LENGTH_BYTES + len(text)) % _ALIGNMENT)
    if len(text) > HEADER_LIMIT:
        raise Rejected(Reason.TOO_LARGE, "identifier")
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def payload_offset(head: bytes, size: int) -> int:
    """Return where the tensor's bytes begin, from the first bytes of a file of `size` bytes. Raises Rejected."""
    if size == 0:
        raise Rejected(Reason.EMPTY)
    if size < LENGTH_BYTES or len(head) < LENGTH_BYTES:
        raise Rejected(Reason.TORN, "no header length")
    length = int.from_bytes(head[:LENGTH_BYTES], "little")
    if not 0 < length <= HEADER_LIMIT:
        raise Rejected(Reason.HEADER, f"{length} bytes long")
    if LENGTH_BYTES + length > size:
        raise Rejected(Reason.TORN, "within the header")
    return LENGTH_BYTES + length


def parse(head: bytes, size: int) -> Parsed:
    """Read the header in the first bytes of a file of `size` bytes. Raises Rejected if the two disagree."""
    offset = payload_offset(head, size)
    if len(head) < offset:
        raise Rejected(Reason.TORN, "within the header")
    try:
        content = json.loads(head[LENGTH_BYTES:offset])
    except (ValueError, RecursionError):
        raise Rejected(Reason.HEADER, "not JSON") from None
    metadata, tensor = _parts(content)
    shape = _shape(tensor)
    if size != offset + shape.nbytes:
        raise Rejected(Reason.TORN if size < offset + shape.nbytes else Reason.TRAILING, f"{size} bytes")
    return Parsed(
        identifier=metadata["identifier"],
        version=metadata["version"],
        shape=shape,
        checksum=metadata["blake3"],
        offset=offset,
    )


def check(parsed: Parsed, expectation: Expectation, version: str) -> None:
    """Raise Rejected unless the header names the entry of this version that the request needs."""
    if parsed.version != version:
        raise Rejected(Reason.VERSION, parsed.version)
    if parsed.identifier != written(expectation.identifier):
        raise Rejected(Reason.IDENTIFIER)
    shape = parsed.shape
    if shape.rows != expectation.rows:
        raise Rejected(Reason.ROWS, f"{shape.rows}, not {expectation.rows}")
    if expectation.width is not None and shape.width != expectation.width:
        raise Rejected(Reason.WIDTH, f"{shape.width}, not {expectation.width}")
    if expectation.dtype is not None and shape.dtype != expectation.dtype:
        raise Rejected(Reason.DTYPE, f"{shape.dtype}, not {expectation.dtype}")


def _parts(content: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """Metadata and the description of the tensor, each with all of its keys."""
    if not isinstance(content, dict):
        raise Rejected(Reason.HEADER, "not an object")
    metadata = content.get("__metadata__")
    if not isinstance(metadata, dict) or metadata.get("format") != str(layout.FORMAT):
        raise Rejected(Reason.FORMAT)
    if not all(isinstance(metadata.get(key), str) for key in ("identifier", "version", "blake3")):
        raise Rejected(Reason.HEADER, "incomplete metadata")
    tensor = content.get(TENSOR)
    if content.keys() != {"__metadata__", TENSOR} or not isinstance(tensor, dict):
        raise Rejected(Reason.HEADER, "not one tensor")
    return metadata, tensor


def _shape(tensor: dict[str, Any]) -> Shape:
    """The shape, if the tensor is two-dimensional, not empty, of a known dtype and as long as its offsets say."""
    dtype, dimensions = tensor.get("dtype"), tensor.get("shape")
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise Rejected(Reason.DTYPE, str(dtype)[:16])
    if not isinstance(dimensions, list) or len(dimensions) != 2:
        raise Rejected(Reason.HEADER, "not two dimensions")
    if not all(type(dimension) is int and dimension > 0 for dimension in dimensions):
        raise Rejected(Reason.HEADER, "dimensions")
    shape = Shape(dtype=dtype, rows=dimensions[0], width=dimensions[1])
    if tensor.get("data_offsets") != [0, shape.nbytes]:
        raise Rejected(Reason.HEADER, "offsets")
    return shape
