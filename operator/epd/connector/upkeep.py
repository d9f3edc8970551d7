"""What the scheduler has done to the store beside lookups: use stamps, the version's record and widths, heartbeats.

Runs in one thread of its own; the engine waits for none of it. While the store is in doubt nothing is asked of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from .local import Copy
from .probe import Health, Pool, Task
from .store import Pin, Record, Store, StoreError

UPKEEP_SECONDS: Final = 60.0
"""Between heartbeats, which the collector misses after ten minutes, and looks whether the record is still there."""
_DUE: Final = 65_536
"""Identifiers that wait for their stamp at most, some 10 MB, while the store hangs; the others' are lost."""
_BATCH: Final = 64
"""Stamps and pins per call: within the deadline even at 50 ms each, so that many are not taken for a hung store."""


class Upkeep:
    """For the scheduler's thread; what it submits runs elsewhere."""

    def __init__(
        self,
        store: Store,
        pool: Pool,
        health: Health,
        *,
        record: Record,
        widths: Mapping[str, int],
        stamp_seconds: float,
        deadline: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`widths` are written if there are any: only encoders know them."""
        self._store = store
        self._pool = pool
        self._health = health
        self._record = record
        self._widths = dict(widths)
        self.stamp_seconds = stamp_seconds
        self._deadline = deadline
        self._clock = clock
        self._due: set[str] = set()
        self._pins: list[Pin] = []
        self._task: Task[None] | None = None
        self._upkeep_at = clock()

    def used(self, identifiers: Iterable[str]) -> None:
        """Have entries stamped; the store leaves out those that were lately."""
        if len(self._due) < _DUE:
            self._due.update(identifiers)

    def unpin(self, source: Copy | Pin) -> None:
        """Have a pin removed."""
        if isinstance(source, Pin):
            self._pins.append(source)

    def step(self, now: float) -> None:
        """Submit what is due, unless the last of it still runs. To be called in each step; costs nothing if idle."""
        if self._task is not None and not self._task.done:
            if self._task.overdue(now, self._deadline):
                self._health.doubt()
            return
        regular = now >= self._upkeep_at
        if not (regular or self._due or self._pins) or self._health.suspect:
            return
        due = {self._due.pop() for _ in range(min(len(self._due), _BATCH))}
        pins, self._pins = self._pins[:_BATCH], self._pins[_BATCH:]
        if regular:
            self._upkeep_at = now + UPKEEP_SECONDS
        self._task = self._pool.submit(lambda: self._work(due, pins, regular=regular))

    def _work(self, due: set[str], pins: list[Pin], *, regular: bool) -> None:
        if regular:
            with suppress(OSError):  # a consumer may have the volume read-only
                self._store.prepare(self._record)
            with suppress(OSError):
                self._store.heartbeat()
            if self._widths:
                with suppress(StoreError):
                    self._store.write_widths(self._widths)
        for pin in pins:
            self._store.unpin(pin)
        for identifier in due:
            self._store.stamp(identifier)
