"""The running account of one pass: what was removed, spared, refused by the file system. Decides nothing."""

from __future__ import annotations

import errno
from collections import Counter
from typing import Final

from epd.api.names import Reason
from epd.collector.result import Cause, Spared, TroubleFacts, Victim

VICTIMS_LIMIT: Final = 1000
"""What a person can read of a plan, and 200 KiB of memory."""


class Ledger:
    """Counts of one pass. In a dry run `removed` and `freed` are what would have been."""

    def __init__(self) -> None:
        self.removed: Counter[Cause] = Counter()
        self.freed: Counter[Cause] = Counter()
        self.spared: Counter[Spared] = Counter()
        self.errors: Counter[tuple[str, str]] = Counter()
        self.victims: list[Victim] = []
        self.victims_left_out = 0
        self.condemned: list[str] = []
        self.absolved: list[str] = []
        self.renamed: list[str] = []
        self.removed_versions = 0
        self.troubles: dict[Reason, str] = {}

    def remove(self, cause: Cause, used_bytes: int) -> None:
        """Count one removed file. `used_bytes` is 0 where other links keep the file."""
        self.removed[cause] += 1
        self.freed[cause] += used_bytes

    def list_victim(self, path: str, cause: Cause, used_bytes: int, age: float | None) -> None:
        """Name what a dry run would remove; beyond the limit only its number is kept."""
        if len(self.victims) < VICTIMS_LIMIT:
            self.victims.append(Victim(path=path, cause=cause, used_bytes=used_bytes, age=age))
        else:
            self.victims_left_out += 1

    def error(self, call: str, error: OSError) -> None:
        """Count a call that failed."""
        self.errors[call, errno.errorcode.get(error.errno or 0, str(error.errno))] += 1

    def trouble(self, reason: Reason, message: str) -> None:
        """Tell something to a person; the first message of a reason stays."""
        self.troubles.setdefault(reason, message)

    def told(self) -> tuple[TroubleFacts, ...]:
        """Return the troubles, in the order they were found: what stops a pass comes first."""
        return tuple(TroubleFacts(reason=reason, message=message) for reason, message in self.troubles.items())
