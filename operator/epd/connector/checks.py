"""Whether entries are on disk, asked by encoders: to republish what was deleted and to promise only what is there.

For the scheduler's thread; the questions, each a look at a file's header, are asked in a pool.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from .holdings import Key
from .probe import Health, Pool, Task
from .store import Expectation, Rejected, Store

CHECK_SECONDS: Final = 0.25
"""How long an encoder waits for one answer: a server that needs longer costs it a republication, not its throughput."""


class Checks:
    """Questions under way."""

    def __init__(
        self,
        store: Store,
        pool: Pool,
        health: Health,
        *,
        deadline: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._pool, self._health = store, pool, health
        self._deadline = deadline
        self._clock = clock
        self._running: dict[str, tuple[float, Task[bool]]] = {}
        self._slow: Task[bool] | None = None

    def __contains__(self, identifier: str) -> bool:
        return identifier in self._running

    def start(self, key: Key, now: float) -> None:
        """Ask for one entry, unless the store would not answer."""
        if key[0] not in self._running and not self._sluggish(now):
            self._running[key[0]] = (now, self._ask(key))

    def settle(self, now: float) -> set[str]:
        """Return the identifiers that turned out to be missing. Who does not answer in time is asked no more."""
        if not self._running:
            return set()
        missing = set[str]()
        for identifier, (since, task) in list(self._running.items()):
            if task.done:
                del self._running[identifier]
                if not task.outcome:
                    missing.add(identifier)
            elif now - since > CHECK_SECONDS or self._health.suspect:
                del self._running[identifier]
                self._slow = task
        return missing

    def missing(self, keys: Iterable[Key]) -> set[str]:
        """Return which of these are not on disk, or not known to be: asked side by side, and waited for shortly."""
        wanted = list(keys)
        now = self._clock()
        if self._sluggish(now):
            return {identifier for identifier, _ in wanted}
        tasks = [(key[0], self._ask(key)) for key in wanted]
        absent = set[str]()
        for identifier, task in tasks:
            if not task.wait(now + CHECK_SECONDS - self._clock()):
                self._slow = task
                absent.add(identifier)
            elif not task.outcome:
                absent.add(identifier)
        return absent

    def _ask(self, key: Key) -> Task[bool]:
        return self._pool.submit(lambda: self._whole(key))

    def _whole(self, key: Key) -> bool:
        """Whether there is a file that can be this entry: power loss of a server leaves empty and torn ones."""
        try:
            self._store.measure(Expectation(identifier=key[0], rows=key[1], width=None, dtype=None))
        except Rejected:
            return False
        return True

    def _sluggish(self, now: float) -> bool:
        """Whether the store is in doubt, or a question that was given up still waits for its answer."""
        if self._slow is not None:
            if self._slow.overdue(now, self._deadline):
                self._health.doubt()
            if self._slow.done:
                self._slow = None
        return self._health.suspect or self._slow is not None
