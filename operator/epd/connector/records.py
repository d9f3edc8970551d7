"""The record of a version, which makes its directory ours, and the widths its encoders measured.

Writes these two files and the directories above them, nothing else; deletes only its own temporary names.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from . import layout
from .seam import Files

_READ_LIMIT: Final = 1 << 20
"""Bytes of a record or of widths that are read: inputs are flags and names, far below it."""
_READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_WRITE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP})
"""How volumes without hard links (SMB, some FUSE) answer link(2)."""
_FIXED_MODES: Final = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP})
"""How volumes whose modes are mount options answer fchmod(2)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """What `versions/<version>.json` says. `claim` is `<namespace>/<name>`, `created` an RFC 3339 time."""

    version: str
    claim: str
    layout: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    created: str

    def encode(self) -> bytes:
        """Return the file's bytes."""
        content = {
            "format": layout.FORMAT,
            "version": self.version,
            "claim": self.claim,
            "layout": self.layout,
            "inputs": self.inputs,
            "created": self.created,
        }
        return json.dumps(content, sort_keys=True).encode() + b"\n"


def directory(root: str) -> str:
    """Return where records lie."""
    return f"{root}/{layout.HOUSEKEEPING}/{layout.VERSIONS}"


def publish(files: Files, root: str, record: Record, nonce: Callable[[], str]) -> None:
    """Write the record unless there is one. One that a crash left unreadable is replaced. Raises OSError."""
    target = f"{directory(root)}/{layout.record_name(record.version)}"
    try:
        found = load(files, target)
        if found is not None and found.get("version") == record.version:
            return
        put = files.rename
    except FileNotFoundError:
        put = partial(_link, files)
    temporary = _temporary(files, root, record.encode(), nonce)
    try:
        put(temporary, target)
    finally:
        with suppress(OSError):
            files.unlink(temporary)


def write_widths(files: Files, root: str, version: str, widths: Mapping[str, int], nonce: Callable[[], str]) -> None:
    """Add widths per modality to those on disk. Raises OSError."""
    known = read_widths(files, root, version)
    merged = known | dict(widths)
    if merged == known:
        return
    temporary = _temporary(files, root, json.dumps(merged, sort_keys=True).encode() + b"\n", nonce)
    try:
        files.rename(temporary, f"{directory(root)}/{layout.widths_name(version)}")
    except OSError:
        with suppress(OSError):
            files.unlink(temporary)
        raise


def read_widths(files: Files, root: str, version: str) -> dict[str, int]:
    """Return the width per modality; empty if the file is absent or not ours to understand."""
    try:
        found = load(files, f"{directory(root)}/{layout.widths_name(version)}") or {}
    except OSError:
        return {}
    return {name: width for name, width in found.items() if type(width) is int and width > 0}


def load(files: Files, path: str) -> dict[str, Any] | None:
    """Return the JSON object in a file; None if it holds something else. Raises OSError."""
    fd = files.open(path, _READ_FLAGS, 0)
    try:
        if not stat.S_ISREG(files.fstat(fd).st_mode):
            return None
        content = json.loads(files.read(fd, _READ_LIMIT))
    except (ValueError, RecursionError):
        return None
    finally:
        with suppress(OSError):
            files.close(fd)
    return content if isinstance(content, dict) else None


def make_directory(files: Files, path: str) -> None:
    """Make a directory that the group may use, whatever the umask. One that exists is left. Raises OSError.

    NotADirectoryError also for a symbolic link: what is written below it could leave the root.
    """
    try:
        files.mkdir(path, layout.DIRECTORY_MODE)
    except FileExistsError:
        if not stat.S_ISDIR(files.stat(path, follow_symlinks=False).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
        return
    fd = files.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, 0)
    try:
        mode = stat.S_IMODE(files.fstat(fd).st_mode)  # keeps the set-group-id bit that fsGroup puts on the root
        if mode & layout.DIRECTORY_MODE != layout.DIRECTORY_MODE:
            set_mode(files, fd, mode | layout.DIRECTORY_MODE)
    finally:
        with suppress(OSError):
            files.close(fd)


def set_mode(files: Files, fd: int, mode: int) -> None:
    """Set the mode of a file just made, unless the volume decides modes by itself. Raises OSError."""
    try:
        files.fchmod(fd, mode)
    except OSError as error:
        if error.errno not in _FIXED_MODES:
            raise


def write_all(files: Files, fd: int, data: bytes | memoryview) -> None:
    """Write everything, however little each call takes. Raises OSError."""
    view = memoryview(data)
    while view:
        count = files.write(fd, view)
        if count <= 0:
            raise OSError(errno.EIO, "wrote nothing")
        view = view[count:]


def _temporary(files: Files, root: str, data: bytes, nonce: Callable[[], str]) -> str:
    """Write a file not yet published; on stable storage, since a record torn by power loss disowns its version."""
    make_directory(files, f"{root}/{layout.HOUSEKEEPING}")
    make_directory(files, directory(root))
    path = f"{directory(root)}/{layout.TEMPORARY_PREFIX}{nonce()}"
    fd = files.open(path, _WRITE_FLAGS, layout.FILE_MODE)
    try:
        try:
            set_mode(files, fd, layout.FILE_MODE)
            write_all(files, fd, data)
            files.fsync(fd)
        finally:
            files.close(fd)
    except OSError:
        with suppress(OSError):
            files.unlink(path)
        raise
    return path


def _link(files: Files, temporary: str, target: str) -> None:
    try:
        files.link(temporary, target)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        files.rename(temporary, target)  # whoever came first wrote the same record
