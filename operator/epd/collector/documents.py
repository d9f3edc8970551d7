"""Small files of housekeeping: read whole or not at all, published whole. Knows nothing of what they say."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from epd.collector.files import Files, set_mode
from epd.connector import layout

_LIMIT: Final = 1 << 20
"""Bytes: inputs of a version are flags and names, far below it."""
_CHUNK: Final = 1 << 16
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""O_NONBLOCK: a FIFO in a file's place does not hang the collector."""
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP})
"""How volumes without hard links (SMB, some FUSE) answer link(2)."""


def read(files: Files, name: str, *, dir_fd: int) -> Mapping[str, Any] | None:
    """Return the JSON object in a regular file; None if it is something else or longer than 1 MiB. Raises OSError."""
    fd = files.open(name, _READ, dir_fd=dir_fd)
    try:
        if not stat.S_ISREG(files.fstat(fd).st_mode):
            return None
        content = b""
        while len(content) <= _LIMIT and (chunk := files.read(fd, _CHUNK)):
            content += chunk
    finally:
        with suppress(OSError):
            files.close(fd)
    if len(content) > _LIMIT:
        return None
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def publish(
    files: Files,
    name: str,
    content: Mapping[str, Any],
    *,
    dir_fd: int,
    nonce: Callable[[], str],
    replace: bool = False,
) -> bool:
    """Write a file whole; False if there is one already (and `replace` is off). Raises OSError.

    Without hard links it is written under its own name: what a crash tears then is a file that cannot be read.
    """
    temporary = f"{layout.TEMPORARY_PREFIX}{nonce()}"
    data = json.dumps(content, sort_keys=True).encode() + b"\n"
    try:
        _write(files, temporary, data, dir_fd)
        if replace:
            files.rename(temporary, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        elif not _link(files, temporary, name, dir_fd):
            _write(files, name, data, dir_fd)
    except FileExistsError:
        return False
    finally:
        with suppress(OSError):
            files.unlink(temporary, dir_fd=dir_fd)
    return True


def timestamp(seconds: float) -> str:
    """Return a time since the epoch as RFC 3339."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _link(files: Files, source: str, name: str, dir_fd: int) -> bool:
    """Give a file a second name; False where there are no hard links. Raises OSError."""
    try:
        files.link(source, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return False
    return True


def _write(files: Files, name: str, content: bytes, dir_fd: int) -> None:
    fd = files.open(name, _WRITE, layout.FILE_MODE, dir_fd=dir_fd)
    try:
        try:
            set_mode(files, fd, layout.FILE_MODE)
            while content:
                content = content[files.write(fd, content) :]
            files.fsync(fd)
        finally:
            files.close(fd)
    except OSError:
        with suppress(OSError):
            files.unlink(name, dir_fd=dir_fd)
        raise
