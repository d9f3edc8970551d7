"""Writes an entry: a temporary file in the entry's shard, renamed when it is whole. Reads nothing, makes no directory.

Nothing under an entry's name is ever opened for writing, so no reader can see a torn file. Not synced: what power loss
tears is found by its checksum and written again. The header comes last, since it carries the checksum: so large tensors
are hashed while they are written.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import Final

from . import layout
from .entry import Reason, Rejected
from .records import set_mode
from .sealing import Seal
from .seam import Files

_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


def write(files: Files, target: str, nonce: str, *, seal: Seal, payload: memoryview) -> None:
    """Publish an entry as `target`, `<root>/<version>/<shard>/<name>`, replacing what has that name. Raises OSError.

    FileNotFoundError: shard or version are gone, or were renamed away meanwhile, and the entry is not published.
    Rejected(NOT_REGULAR): one of them is not a directory but, say, a link that leads out of the root.
    """
    shard = os.path.dirname(target)
    for directory in (os.path.dirname(shard), shard):
        if not stat.S_ISDIR(files.stat(directory, follow_symlinks=False).st_mode):
            raise Rejected(Reason.NOT_REGULAR, directory)
    temporary = f"{shard}/{layout.TEMPORARY_PREFIX}{nonce}"
    fd = files.open(temporary, _FLAGS, layout.FILE_MODE)
    try:
        try:
            set_mode(files, fd, layout.FILE_MODE)
            _write_at(files, fd, payload, seal.length)
            _write_at(files, fd, memoryview(seal.head()), 0)
        finally:
            files.close(fd)  # NFS says here that the volume is full
        files.rename(temporary, target)
    except OSError:
        with suppress(OSError):
            files.unlink(temporary)
        raise


def _write_at(files: Files, fd: int, data: memoryview, offset: int) -> None:
    """Write everything, however little each call takes. Raises OSError."""
    done = 0
    while done < len(data):
        count = files.pwrite(fd, data[done:], offset + done)
        if count <= 0:
            raise OSError(errno.EIO, "wrote nothing")
        done += count
