"""Counts what is on the claim and is not ours, with bounded work. Never changes it."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from typing import Final

from epd.collector.files import Files, directory
from epd.collector.scan import BLOCK

LIMIT: Final = 10_000
"""Stats of one pass, 30 ms: enough to show that something is there; how much is told by the volume's own usage."""
_DEPTH: Final = 8


@dataclass(slots=True, kw_only=True)
class Foreign:
    """Counts below names that are not ours; both counts are lower bounds once `LIMIT` is reached."""

    files: Files
    device: int
    entries: int = 0
    used_bytes: int = 0

    def count(self, name: str, *, dir_fd: int, depth: int = _DEPTH) -> None:
        """Count a name and what is below it. What cannot be read counts as one entry of no size."""
        if self.entries >= LIMIT:
            return
        self.entries += 1
        try:
            status = self.files.stat(name, dir_fd=dir_fd, follow_symlinks=False)
            if status.st_dev != self.device:
                return
            self.used_bytes += status.st_blocks * BLOCK
            if stat.S_ISDIR(status.st_mode) and depth > 0:
                with directory(self.files, name, dir_fd=dir_fd) as fd, self.files.scandir(fd) as entries:
                    for entry in entries:
                        if self.entries >= LIMIT:
                            return
                        self.count(entry.name, dir_fd=fd, depth=depth - 1)
        except OSError:
            return
