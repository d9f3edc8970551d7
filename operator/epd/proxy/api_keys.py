"""The directory with the API keys: a Secret as the kubelet mounts it, read again when it changes.

What can't be read never takes keys away that are in force, and no key is ever logged.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from epd.proxy.tenants import Refused, Table, read_table

log = logging.getLogger(__name__)

RELOAD_SECONDS: Final = 2.0
"""How often the directory is looked at. A key that is taken back should be worth nothing within seconds; what the
kubelet takes to bring a Secret into a pod (up to a minute) comes on top."""
FILE_LIMIT: Final = 1 << 20
"""Bytes of a file: as many as a whole Secret may have."""
_LINK: Final = "..data"
"""The kubelet's link to the directory of the files that are valid together (Kubernetes, AtomicWriter)."""
_SHOWN: Final = 20
"""Refused lines in the log: enough to find what is wrong, and no flood where a file is no list of keys at all."""

State = tuple[object, ...]


class ApiKeys:
    """Every regular file of `directory` is a tenant, its lines are keys. Raises OSError where it can't be read.

    `on_read` hears of each reading whether it succeeded.
    """

    def __init__(self, directory: Path, *, on_read: Callable[[bool], object]) -> None:
        self._directory = directory
        self._on_read = on_read
        self._trouble = ""
        self._seen, self.table = _read(directory)
        self._report()

    def refresh(self) -> bool:
        """Read again if something changed; says whether other keys are in force now."""
        return self._take(_look(self._directory, self._seen))

    async def follow(self) -> None:
        """Refresh for ever, beside the loop: a directory may be slow."""
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            try:
                self._take(await asyncio.to_thread(_look, self._directory, self._seen))
            except Exception:
                # whoever takes a key back relies on this to go on
                log.exception("API keys in %s: looking for changes failed; those in force stay", self._directory)

    def _take(self, found: tuple[State, Table] | OSError | None) -> bool:
        if isinstance(found, OSError):
            self._fail(str(found))
            return False
        if self._trouble:
            self._trouble = ""
            log.info("API keys in %s can be read again", self._directory)
        if found is None:
            return False
        self._seen, self.table = found
        self._report()
        return True

    def _fail(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            self._on_read(False)
            log.error("API keys in %s can't be read, those in force stay: %s", self._directory, trouble)

    def _report(self) -> None:
        table = self.table
        self._on_read(True)
        log.info("API keys in %s: %d of %d tenants", self._directory, len(table), len(table.tenants))
        for refused in table.refused[:_SHOWN]:
            log.warning("API keys in %s: %s", self._directory, refused)
        if len(table.refused) > _SHOWN:
            log.warning("API keys in %s: %d more lines are refused", self._directory, len(table.refused) - _SHOWN)
        if not table:
            log.error("API keys in %s: there is none, so every request is refused", self._directory)


def _look(directory: Path, seen: State) -> tuple[State, Table] | OSError | None:
    """What is there, if that is not what was `seen`."""
    try:
        return None if _state(directory) == seen else _read(directory)
    except OSError as error:
        return error


def _read(directory: Path) -> tuple[State, Table]:
    # taken before: what changes while it is read is read again
    state = _state(directory)
    valid = _valid(directory)
    files: dict[str, bytes] = {}
    unread: list[Refused] = []
    for name in _names(valid):
        with (valid / name).open("rb") as file:
            content = file.read(FILE_LIMIT + 1)
        if len(content) > FILE_LIMIT:
            unread.append(Refused(name, 0, f"the file is larger than {FILE_LIMIT} bytes"))
        else:
            files[name] = content
    return state, read_table(files, unread=unread)


def _valid(directory: Path) -> Path:
    """Where the files are: behind the kubelet's link, all of which change at once, or in the directory itself."""
    try:
        return directory / os.readlink(directory / _LINK)
    except OSError:
        return directory


def _names(valid: Path) -> list[str]:
    names = []
    with os.scandir(valid) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            # a link that leads nowhere is an error: its tenant is about to come or to go, nobody knows which
            if stat.S_ISREG(entry.stat().st_mode):
                names.append(entry.name)
    return sorted(names)


def _state(directory: Path) -> State:
    """What differs where files do."""
    valid = _valid(directory)
    if valid != directory:
        # the kubelet never writes into it again
        return (str(valid), *_stamp(valid))
    return tuple((name, *_stamp(valid / name)) for name in _names(valid))


def _stamp(path: Path) -> State:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size
