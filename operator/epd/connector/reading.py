"""Opens an entry and reads it: header first, then the tensor's bytes, verified on the way. Writes nothing.

Never maps a file of the claim: a server that drops it would turn a read into SIGBUS, which kills the engine.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from blake3 import blake3

from .entry import Expectation, Parsed, Reason, Rejected, Shape, check, parse, payload_offset
from .seam import Files, rejected

# O_NONBLOCK so that a FIFO in the place of an entry does not hold the reader; regular files ignore it.
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_HEAD: Final = 4096
"""First read: a page, which holds the header of any identifier up to 3 KB."""
_CHUNK: Final = 1 << 20
"""1 MiB, read and hashed at a time: the most an NFS client reads in one request, and still in a core's second-level
cache when it is hashed, so that hashing reads no memory again."""


@dataclass(frozen=True, slots=True)
class _Opened:
    fd: int
    parsed: Parsed


def measure(files: Files, path: str, version: str, expectation: Expectation) -> Parsed:
    """Return the header of the entry at `path`, checked against the expectation. Raises Rejected."""
    found = _opened(files, path, version, expectation)
    _close(files, found.fd)
    return found.parsed


def read(
    files: Files,
    path: str,
    version: str,
    expectation: Expectation,
    into: Callable[[Shape], memoryview],
    progressed: Callable[[], object],
) -> Parsed:
    """Read the tensor's bytes into the writable buffer that `into` gives for its shape. Raises Rejected.

    `progressed` is called after each chunk.

    What `into` raises passes through. After any exception the buffer's content is undefined.
    """
    found = _opened(files, path, version, expectation)
    try:
        _payload(files, found, into(found.parsed.shape), progressed)
    finally:
        _close(files, found.fd)
    return found.parsed


def verify(files: Files, path: str, version: str, expectation: Expectation, progressed: Callable[[], object]) -> Parsed:
    """Check header and checksum of the entry at `path`, keeping none of its bytes. Raises Rejected."""
    found = _opened(files, path, version, expectation)
    try:
        _payload(files, found, None, progressed)
    finally:
        _close(files, found.fd)
    return found.parsed


def _opened(files: Files, path: str, version: str, expectation: Expectation) -> _Opened:
    try:
        fd = files.open(path, _FLAGS, 0)
    except OSError as error:
        raise rejected(error) from error
    try:
        parsed = _header(files, fd)
        check(parsed, expectation, version)
    except BaseException as error:
        _close(files, fd)
        if isinstance(error, OSError):
            raise rejected(error) from error
        raise
    return _Opened(fd, parsed)


def _close(files: Files, fd: int) -> None:
    """Close what was only read: an error of close says nothing about the bytes."""
    with suppress(OSError):
        files.close(fd)


def _header(files: Files, fd: int) -> Parsed:
    status = files.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise Rejected(Reason.NOT_REGULAR)
    head = _start(files, fd, min(_HEAD, status.st_size))
    offset = payload_offset(head, status.st_size)
    if offset > len(head):
        head = _start(files, fd, offset)
    return parse(head, status.st_size)


def _start(files: Files, fd: int, length: int) -> bytes:
    start = bytearray(length)
    if _fill(files, fd, memoryview(start), 0) < length:
        raise Rejected(Reason.TORN, "shrank while it was read")
    return bytes(start)


def _fill(files: Files, fd: int, view: memoryview, offset: int) -> int:
    """Read until the view is full or the file ends, and return the bytes read."""
    done = 0
    while done < len(view):
        count = files.preadv(fd, [view[done:]], offset + done)
        if count <= 0:
            break
        done += count
    return done


def _payload(files: Files, found: _Opened, into: memoryview | None, progressed: Callable[[], object]) -> None:
    """Read and hash the tensor's bytes, into a buffer or, chunk by chunk, into one that is thrown away."""
    parsed, hasher = found.parsed, blake3()
    total = parsed.shape.nbytes
    if into is not None and len(into) != total:
        raise ValueError(f"a buffer of {len(into)} bytes for {total}")
    scratch = memoryview(bytearray(min(_CHUNK, total) if into is None else 0))
    for start in range(0, total, _CHUNK):
        length = min(_CHUNK, total - start)
        view = scratch[:length] if into is None else into[start : start + length]
        try:
            count = _fill(files, found.fd, view, parsed.offset + start)
        except OSError as error:
            raise rejected(error) from error
        if count < length:
            raise Rejected(Reason.TORN, "shrank while it was read")
        hasher.update(view)
        progressed()
    if hasher.hexdigest() != parsed.checksum:
        raise Rejected(Reason.CHECKSUM)
