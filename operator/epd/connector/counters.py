"""What the connector counts, and how workers hand their counts to the scheduler. Touches only the file it is given.

Model runner V1 drops what an encoder's worker reports, so workers add to a block of doubles in a file of shared memory,
one row per worker, and the scheduler reads the differences.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

Delta = dict[str, Any]
"""Name to increment, to increments per reason, or to observations; what vLLM carries to its API server."""

COUNTERS: Final = (
    "hits",
    "misses",
    "loads",
    "saves",
    "republished",
    "loaded_bytes",
    "saved_bytes",
    "save_seconds",
    "probe_timeouts",
    "budget_full",
    "unavailable_requests",
    "local_encodes",
    "load_failures",
)
BY_REASON: Final = ("rejects", "save_failures", "errors")
OBSERVED: Final = ("load_seconds",)
GAUGES: Final = ("held",)

SAVE_REASONS: Final = ("full", "read_only", "unreadable", "stale", "io", "dtype", "timeout", "suspect", "other")
"""Why a save failed, as far as the shared file tells them apart."""
COLUMNS: Final = (
    "saves",
    "republished",
    "saved_bytes",
    "save_seconds",
    "load_failures",
    *(f"save_failures.{reason}" for reason in SAVE_REASONS),
)
"""Of a worker's row."""

_OBSERVATIONS: Final = 1024
"""Kept between two steps at most; far above the items of a step."""


class Counts:
    """What was counted since it was last taken. For one thread."""

    def __init__(self) -> None:
        self._delta: Delta = {}
        self._held: int | None = None

    def add(self, name: str, amount: float = 1) -> None:
        """Add to a counter."""
        self._delta[name] = self._delta.get(name, 0) + amount

    def reason(self, name: str, reason: str, amount: float = 1) -> None:
        """Add to a counter's reason."""
        reasons = self._delta.setdefault(name, {})
        reasons[reason] = reasons.get(reason, 0) + amount

    def observe(self, name: str, value: float) -> None:
        """Add an observation."""
        values = self._delta.setdefault(name, [])
        if len(values) < _OBSERVATIONS:
            values.append(value)

    def gauge(self, value: int) -> None:
        """Set how many copies and pins are held."""
        if value != self._held:
            self._held = value
            self._delta["held"] = value

    def take(self) -> Delta:
        """Return what came since the last time."""
        delta, self._delta = self._delta, {}
        return delta


def merge(into: Delta, other: Mapping[str, Any]) -> None:
    """Add a later delta to an earlier one."""
    for name, value in other.items():
        if name in GAUGES:
            into[name] = value
        elif isinstance(value, Mapping):
            reasons = into.setdefault(name, {})
            for reason, amount in value.items():
                reasons[reason] = reasons.get(reason, 0) + amount
        elif isinstance(value, Sequence):
            into[name] = [*into.get(name, ()), *value]
        else:
            into[name] = into.get(name, 0) + value


class WorkerReader:
    """The scheduler's view of the shared block."""

    def __init__(self, buffer: memoryview, ranks: int) -> None:
        self._cells = buffer.cast("B").cast("d")
        self._ranks = ranks
        self._seen = [0.0] * len(COLUMNS)

    def into(self, counts: Counts) -> None:
        """Add what workers counted since the last time."""
        cells = self._cells.tolist()
        for column, name in enumerate(COLUMNS):
            total = sum(cells[column :: len(COLUMNS)])
            grown = total - self._seen[column]
            if grown > 0:
                self._seen[column] = total
                counter, _, reason = name.partition(".")
                if reason:
                    counts.reason(counter, reason, grown)
                else:
                    counts.add(counter, grown)


class WorkerRow:
    """A worker's row in the shared block. On another node than the scheduler's there is none: nothing is counted."""

    def __init__(self, path: str, rank: int) -> None:
        self._cells: memoryview[float] | None = None
        self._start = rank * len(COLUMNS)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return
        try:
            if os.fstat(fd).st_size >= (rank + 1) * len(COLUMNS) * 8:
                self._cells = memoryview(mmap.mmap(fd, 0)).cast("d")
        except OSError:  # no memory for a page: then nothing is counted
            return
        finally:
            os.close(fd)

    def add(self, name: str, amount: float = 1) -> None:
        """Add to a column. An aligned double is stored at once, so a reader sees the old or the new value."""
        if self._cells is not None:
            self._cells[self._start + COLUMNS.index(name)] += amount


class NoRow:
    """Before the scheduler said where to count."""

    def add(self, name: str, amount: float = 1) -> None:
        """Forget it."""
