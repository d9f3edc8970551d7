"""Searches for entries on behalf of requests: one per key, with a deadline, repeated while there is no room. No I/O.

For the scheduler's thread; the searches themselves run in a pool.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from .asks import Want
from .counters import Counts
from .finder import Finder, Found, Full, Missed
from .holdings import Key
from .probe import Health, Pool, Task

_ROOM_SECONDS: Final = 0.02
"""Between attempts to find room for a copy: a few steps of decoding, in which copies are released."""


@dataclass(slots=True, eq=False)
class Lookup:
    """A search, and the requests that wait for it. `want` is one without pixels if any of theirs is."""

    want: Want
    since: float
    """When the requests began to wait; `asked` is when the store was, which is later for who waits for room."""
    asked: float = 0.0
    task: Task[Found | Missed | Full] | None = None
    again_at: float = 0.0
    crowded: bool = False
    pin: bool = False
    waiting: set[str] = field(default_factory=set)


class Lookups:
    """The searches under way. `conclude` gets each verdict with the ids of the requests that waited for it."""

    def __init__(
        self,
        finder: Finder,
        pool: Pool,
        health: Health,
        counts: Counts,
        *,
        deadline: float,
        conclude: Callable[[Key, Found | Missed, set[str], float], None],
    ) -> None:
        self._finder, self._pool, self._health, self._counts = finder, pool, health, counts
        self._deadline = deadline
        self._conclude = conclude
        self._running: dict[Key, Lookup] = {}

    def join(self, want: Want, request: str, now: float) -> None:
        """Start the search or wait for the one that runs; it may be concluded before this returns."""
        lookup = self._running.get(want.key)
        if lookup is None:
            lookup = self._running[want.key] = Lookup(want, now)
        elif want.bare:
            lookup.want = want
        lookup.waiting.add(request)
        self._settle(want.key, lookup, now)

    def leave(self, key: Key, request: str) -> None:
        """Wait no more. A search that nobody waits for gives back what it finds."""
        lookup = self._running.get(key)
        if lookup is None:
            return
        lookup.waiting.discard(request)
        if not lookup.waiting:
            del self._running[key]
            if lookup.task is not None:
                lookup.task.abandon()

    def settle(self, now: float) -> None:
        """Bring all searches forward."""
        for key, lookup in list(self._running.items()):
            self._settle(key, lookup, now)

    def close(self) -> None:
        """Abandon all searches."""
        for key, lookup in list(self._running.items()):
            for request in list(lookup.waiting):
                self.leave(key, request)

    def _settle(self, key: Key, lookup: Lookup, now: float) -> None:
        task = lookup.task
        if task is None:
            if not self._health.suspect:
                if now >= lookup.again_at:
                    self._search(key, lookup, now)
            elif not lookup.want.bare or self._health.lasting(now):
                self._end(key, lookup, Missed("suspect"), now)
        elif task.done:
            self._outcome(key, lookup, task, now)
        elif reason := self._given_up(lookup, task, now):
            task.abandon()
            if reason == "timeout":
                self._counts.add("probe_timeouts")
            self._end(key, lookup, Missed(reason), now)

    def _given_up(self, lookup: Lookup, task: Task[Found | Missed | Full], now: float) -> str | None:
        """Why a search is waited for no longer.

        Who has pixels has an alternative, and takes it. Who has none waits for a thread, and for a large entry, as
        long as the store answers: many requests at once, or the slow entry of another, are no reason to fail any.
        """
        if task.overdue(now, self._deadline):
            self._health.doubt()
            return "timeout"
        if lookup.want.bare:
            return "suspect" if task.started is None and self._health.lasting(now) else None
        if now - (task.started or lookup.asked) > self._deadline:
            return "timeout"
        return "suspect" if self._health.suspect else None

    def _search(self, key: Key, lookup: Lookup, now: float) -> None:
        lookup.asked = now
        modality, pin = lookup.want.modality, lookup.pin
        lookup.task = self._pool.submit(lambda: self._finder.find(key, modality, pin=pin), dispose=self._give_back)

    def _give_back(self, outcome: Found | Missed | Full) -> None:
        """Dispose of what nobody waits for, never in the thread that finds so: a pin hangs with its volume."""
        self._pool.submit(lambda: self._finder.give_back(outcome))

    def _outcome(self, key: Key, lookup: Lookup, task: Task[Found | Missed | Full], now: float) -> None:
        outcome = task.outcome
        late = now - lookup.since > self._deadline
        if outcome is None:
            self._end(key, lookup, Missed("error"), now)
        elif not isinstance(outcome, Full):
            self._end(key, lookup, outcome, now)
        elif late and not lookup.want.bare:
            self._end(key, lookup, Missed("budget_full"), now)
        else:
            if not lookup.crowded:
                self._counts.add("budget_full")
            lookup.crowded, lookup.task, lookup.again_at = True, None, now + _ROOM_SECONDS
            if late:  # a pin needs no room; but a worker that reads it hangs if the volume does, so it comes last
                lookup.pin, lookup.since = True, now

    def _end(self, key: Key, lookup: Lookup, outcome: Found | Missed, now: float) -> None:
        del self._running[key]
        self._conclude(key, outcome, lookup.waiting, now)
