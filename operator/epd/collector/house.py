"""The directories of housekeeping, held open for one pass. Makes them; deletes nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from epd.collector.files import Files, directory, set_mode
from epd.collector.ledger import Ledger
from epd.connector import layout

SPARE: Final = "spare"
"""Empty files made beforehand: on a full disk one of them is renamed into a mark."""
PARTS: Final = (layout.VERSIONS, layout.CONDEMNED, layout.TRASH, layout.PINS, layout.PROBE, SPARE)
_ROOT: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(slots=True, kw_only=True)
class House:
    """Descriptors of one pass. A part that is absent, or could not be made on a full disk, is not in `parts`."""

    root: int
    housekeeping: int
    device: int
    parts: dict[str, int] = field(default_factory=dict)


@contextmanager
def open_root(files: Files, path: str) -> Iterator[int]:
    """Hold the root open; the one call with a path. Raises OSError."""
    fd = files.open(path, _ROOT)
    try:
        yield fd
    finally:
        with suppress(OSError):
            files.close(fd)


@contextmanager
def open_housekeeping(files: Files, root: int, *, make: bool) -> Iterator[House]:
    """Hold `.epd-gc` open. Raises OSError: ENOENT if it is absent and not to be made."""
    if make:
        make_directory(files, layout.HOUSEKEEPING, dir_fd=root)
    with directory(files, layout.HOUSEKEEPING, dir_fd=root) as fd:
        yield House(root=root, housekeeping=fd, device=files.fstat(root).st_dev)


def open_parts(files: Files, house: House, stack: ExitStack, ledger: Ledger, *, make: bool) -> None:
    """Open the parts for as long as `stack` lasts. A dry run makes none but the one of the server's clock."""
    for name in PARTS:
        try:
            if make or name == layout.PROBE:
                make_directory(files, name, dir_fd=house.housekeeping)
            house.parts[name] = stack.enter_context(directory(files, name, dir_fd=house.housekeeping))
        except OSError as error:
            if error.errno != errno.ENOENT:
                ledger.error("open", error)


def make_directory(files: Files, name: str, *, dir_fd: int) -> None:
    """Make a directory that the group may use, whatever the umask. One that exists is left, also on a full disk."""
    try:
        files.mkdir(name, layout.DIRECTORY_MODE, dir_fd=dir_fd)
    except FileExistsError:
        return
    except OSError as error:
        try:
            with directory(files, name, dir_fd=dir_fd):
                return
        except FileNotFoundError:
            raise error from None
    with directory(files, name, dir_fd=dir_fd) as fd:
        mode = files.fstat(fd).st_mode & 0o7777  # keeps the set-group-id bit that fsGroup puts on the root
        if mode & layout.DIRECTORY_MODE != layout.DIRECTORY_MODE:
            set_mode(files, fd, mode | layout.DIRECTORY_MODE)
