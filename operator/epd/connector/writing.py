"""Writes an entry: a temporary file in the entry's shard, renamed when it is whole. Reads nothing, makes no directory.

Nothing under an entry's name is ever opened for writing, so no reader can see a torn file.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from blake3 import blake3

from . import layout
from .entry import Shape, header
from .reading import CHUNK
from .records import set_mode, write_all
from .seam import Files

_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


def write(
    files: Files,
    directory: str,
    name: str,
    nonce: str,
    *,
    identifier: str,
    version: str,
    shape: Shape,
    payload: memoryview,
) -> None:
    """Publish an entry as `<directory>/<name>`, replacing what has that name. Raises OSError, and Rejected as `header`.

    FileNotFoundError: the directory is gone, or was renamed away meanwhile, and the entry is not published.
    """
    temporary = f"{directory}/{layout.TEMPORARY_PREFIX}{nonce}"
    blank = header(identifier, version, shape)
    fd = files.open(temporary, _FLAGS, layout.FILE_MODE)
    try:
        try:
            set_mode(files, fd, layout.FILE_MODE)
            digest = _contents(files, fd, blank, payload)
            _at_start(files, fd, header(identifier, version, shape, digest))
        finally:
            files.close(fd)  # NFS says here that the volume is full
        files.rename(temporary, f"{directory}/{name}")
    except OSError:
        with suppress(OSError):
            files.unlink(temporary)
        raise


def _contents(files: Files, fd: int, blank: bytes, payload: memoryview) -> str:
    """Write header and payload, and return the payload's checksum; each chunk is hashed while the cache holds it."""
    write_all(files, fd, blank)
    hasher = blake3()
    for start in range(0, len(payload), CHUNK):
        chunk = payload[start : start + CHUNK]
        hasher.update(chunk)
        write_all(files, fd, chunk)
    return hasher.hexdigest()


def _at_start(files: Files, fd: int, data: bytes) -> None:
    """Write over the first bytes of a file."""
    done = 0
    while done < len(data):
        done += files.pwrite(fd, data[done:], done)
