"""Opens an entry and reads it: header first, then the tensor's bytes, verified on the way. Writes nothing.

Never maps a file of the claim: a server that drops it would turn a read into SIGBUS, which kills the engine.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from blake3 import blake3

from .entry import LENGTH_BYTES, Expectation, Parsed, Reason, Rejected, Shape, check, parse, payload_offset
from .seam import Files, rejecting

# O_NONBLOCK so that a FIFO in the place of an entry does not hold the reader; regular files ignore it.
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_HEAD: Final = 4096
"""First read: a page, which holds the header of any identifier up to 3 KB."""
CHUNK: Final = 1 << 20
"""Read and hashed at a time: stays in the core's second-level cache, so that hashing reads no memory again."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An open entry with its header checked, and the first bytes of the file."""

    fd: int
    parsed: Parsed
    head: memoryview


@contextmanager
def opened(files: Files, path: str, version: str, expectation: Expectation | None) -> Iterator[Opened]:
    """Open the entry at `path` and check its header, against the expectation if there is one. Raises Rejected."""
    with rejecting():
        fd = files.open(path, _FLAGS, 0)
    try:
        with rejecting():
            found = _head(files, fd)
        if expectation is not None:
            check(found.parsed, expectation, version)
        yield found
    finally:
        with suppress(OSError):
            files.close(fd)


def read(
    files: Files, path: str, version: str, expectation: Expectation, into: Callable[[Shape], memoryview]
) -> Parsed:
    """Read the tensor's bytes into the writable buffer that `into` gives for its shape. Raises Rejected.

    What `into` raises passes through. After Rejected the buffer's content is undefined.
    """
    with opened(files, path, version, expectation) as found:
        _payload(files, found, into(found.parsed.shape))
    return found.parsed


def verify(files: Files, path: str, version: str, expectation: Expectation) -> Parsed:
    """Check the header and the checksum of the entry at `path`, keeping none of its bytes. Raises Rejected."""
    with opened(files, path, version, expectation) as found:
        _payload(files, found, None)
    return found.parsed


def _head(files: Files, fd: int) -> Opened:
    status = files.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise Rejected(Reason.NOT_REGULAR)
    head = _at_start(files, fd, min(_HEAD, status.st_size))
    offset = payload_offset(bytes(head[:LENGTH_BYTES]), status.st_size)
    if offset > len(head):
        head = _at_start(files, fd, offset)
    return Opened(fd, parse(bytes(head[:offset]), status.st_size), head)


def _at_start(files: Files, fd: int, length: int) -> memoryview:
    view = memoryview(bytearray(length))
    if _fill(files, fd, view, 0) < length:
        raise Rejected(Reason.TORN, "shrank while it was read")
    return view


def _fill(files: Files, fd: int, view: memoryview, offset: int) -> int:
    """Read until the view is full or the file ends; returns the bytes read."""
    done = 0
    while done < len(view):
        count = files.preadv(fd, [view[done:]], offset + done)
        if count <= 0:
            break
        done += count
    return done


def _payload(files: Files, found: Opened, into: memoryview | None) -> None:
    """Read and hash the tensor's bytes, into a buffer or, chunk by chunk, into one that is thrown away."""
    parsed, hasher = found.parsed, blake3()
    total = parsed.shape.nbytes
    if into is not None and len(into) != total:
        raise ValueError(f"a buffer of {len(into)} bytes for {total}")
    scratch = memoryview(bytearray(min(CHUNK, total) if into is None else 0))
    for start in range(0, total, CHUNK):
        length = min(CHUNK, total - start)
        view = scratch[:length] if into is None else into[start : start + length]
        with rejecting():
            count = _fill(files, found.fd, view, parsed.offset + start)
        if count < length:
            raise Rejected(Reason.TORN, "shrank while it was read")
        hasher.update(view)
    if hasher.hexdigest() != parsed.checksum:
        raise Rejected(Reason.CHECKSUM)
