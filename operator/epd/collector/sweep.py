"""Removes what dead writers leave behind: temporary files, probes, records of versions long gone. Never a directory.

Directories in live versions stay: vLLM's connector has no retry for one that vanishes, and ours makes at most 256.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from epd.collector.files import Files, directory
from epd.collector.house import House
from epd.collector.ledger import Ledger
from epd.collector.result import Cause
from epd.collector.scan import BLOCK
from epd.connector import layout as names

TEMPORARY_AGE: Final = 3600.0
"""Seconds since the last write: connectors give a write 30 s."""
PROBE_AGE: Final = 86400.0
"""Seconds since the last touch: a collector touches its probe in each pass, an engine when it starts."""
RECORD_AGE: Final = 30 * 86400.0
"""Seconds that a record outlives its version: a writer unknown to the API would show up by then."""


@dataclass(slots=True, kw_only=True)
class Sweep:
    """Sweeps one root. `now` is the server's time."""

    files: Files
    house: House
    ledger: Ledger
    now: float
    dry_run: bool

    def version(self, version: str) -> None:
        """Remove temporary files of a version that are too old to be written still."""
        try:
            with directory(self.files, version, dir_fd=self.house.root) as fd:
                for name in self._names(fd):
                    if names.SHARD_PATTERN.fullmatch(name):
                        self._inside(f"{version}/{name}", name, fd)
        except OSError as error:
            self._failed("open", error)

    def _inside(self, path: str, name: str, dir_fd: int) -> None:
        try:
            with directory(self.files, name, dir_fd=dir_fd) as fd:
                self._old(path, fd, TEMPORARY_AGE, names.TEMPORARY_PREFIX)
        except OSError as error:
            self._failed("open", error)

    def housekeeping(self, unneeded: Iterable[str]) -> None:
        """Remove old temporary files and probes, and records of `unneeded` versions, all of them ours."""
        self._old(names.HOUSEKEEPING, self.house.housekeeping, TEMPORARY_AGE, names.TEMPORARY_PREFIX)
        versions, probes = self.house.parts.get(names.VERSIONS), self.house.parts.get(names.PROBE)
        if probes is not None:
            self._old(names.PROBE, probes, PROBE_AGE, "")
        if versions is None:
            return
        self._old(names.VERSIONS, versions, TEMPORARY_AGE, names.TEMPORARY_PREFIX)
        for version in unneeded:
            for name in (names.widths_name(version), names.record_name(version)):
                self._remove_old(f"{names.VERSIONS}/{name}", name, versions, RECORD_AGE)

    def _old(self, path: str, fd: int, age: float, prefix: str) -> None:
        for name in self._names(fd):
            if name.startswith(prefix):
                self._remove_old(f"{path}/{name}", name, fd, age)

    def _remove_old(self, path: str, name: str, fd: int, age: float) -> None:
        try:
            status = self.files.stat(name, dir_fd=fd, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode) or self.now - status.st_mtime <= age:
                return
            size = status.st_blocks * BLOCK if status.st_nlink == 1 else 0
            if self.dry_run:
                self.ledger.list_victim(path, Cause.TEMPORARY, size, self.now - status.st_mtime)
            else:
                self.files.unlink(name, dir_fd=fd)
            self.ledger.remove(Cause.TEMPORARY, size)
        except OSError as error:
            self._failed("unlink", error)

    def _names(self, fd: int) -> list[str]:
        with self.files.scandir(fd) as entries:
            return [entry.name for entry in entries]

    def _failed(self, call: str, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            self.ledger.error(call, error)
