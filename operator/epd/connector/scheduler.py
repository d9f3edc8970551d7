"""Decides, in the engine core's thread, what a request gets from the store: its entry, an encoding here, or an error.

Every method returns at once. What may hang runs in pools; what may vanish is copied or pinned before the engine is told
that it exists; what is promised to a worker is held until the step that reads it is accounted. Raises nothing.
Knows vLLM only by the shape of what it is given, so it is tested without it too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .asks import Ask, Want, ask
from .checks import Checks
from .counters import Counts, Delta, WorkerReader
from .finder import Finder, Found, Missed
from .flights import Flights
from .holdings import Holdings, Key, Load
from .local import Copy
from .lookups import Lookups
from .probe import Health, Pool
from .store import Pin, Store
from .upkeep import Upkeep

MISS_SECONDS: Final = 5.0
"""A miss stands for a request that cannot be scheduled yet; then the store is asked again: another may have encoded."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one step tells the workers. `counters` is the file in which they count."""

    number: int
    loads: tuple[Load, ...]
    republish: tuple[str, ...]
    counters: str | None


NOTHING: Final = Step(0, (), (), None)
"""Of a step that could not be planned."""


class SchedulerSide:
    """The scheduler's half of the connector. For one thread."""

    def __init__(
        self,
        *,
        store: Store,
        finder: Finder,
        upkeep: Upkeep,
        health: Health,
        lookups: Pool,
        local: Pool,
        producer: bool,
        consumer: bool,
        deadline: float,
        fields: Callable[[str], set[str]],
        counters: str | None = None,
        worker_counts: WorkerReader | None = None,
        raised: Mapping[str, int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`fields` names a modality's keys that are metadata, not media; `deadline` (s) makes a lookup a miss.

        `raised` has our exceptions by hook, which are counted elsewhere.
        """
        self._finder, self._upkeep, self._local = finder, upkeep, local
        self._producer, self._consumer = producer, consumer
        self._fields, self._counters, self._worker_counts, self._clock = fields, counters, worker_counts, clock
        self._counts = Counts()
        self._lookups = Lookups(finder, lookups, health, self._counts, deadline=deadline, conclude=self._conclude)
        self._checks = Checks(store, lookups, health, deadline=deadline, clock=clock)
        self._holdings = Holdings(self._give_back)
        self._flights = Flights(self._holdings)
        self._asks: dict[str, Ask] = {}
        self._current: Ask | None = None
        self._mirror: set[str] = set()
        """What vLLM's local cache holds. A hint: /reset_encoder_cache empties that cache and tells no connector."""
        self._spoilt: set[str] = set()
        """In the local cache, but a worker failed to load it: vLLM does not ask for it again, so we load it again."""
        self._republish: set[str] = set()
        self._unavailable: set[str] = set()
        self._raised: Mapping[str, int] = {} if raised is None else raised
        self._told: dict[str, int] = {}

    @property
    def held(self) -> int:
        """Copies and pins that are held."""
        return len(self._holdings)

    def ensure(self, request: Any, computed: int) -> bool:
        """Tell whether each item that is not computed yet has a verdict; if not, the request waits for a step."""
        known = self._asks.get(request.request_id)
        if known is None or len(known.wants) != len(request.mm_features):
            known = self._admit(request, known)
        self._current = known
        now = self._clock()
        if now >= known.stamp_at:
            known.stamp_at = now + self._upkeep.stamp_seconds
            self._upkeep.used(known.keys)
        if computed >= known.end and not known.loose:
            return True
        if known.contradictory:  # vLLM fails it too, but only while the first item is still in the local cache
            return self._fail(known)
        ready = True
        for want in known.wants:
            if want.end <= computed:
                self._let_go(known, want)
            elif not self._available(known, want, now):
                ready = False
        return ready

    def has(self, identifier: str) -> bool:
        """Tell whether the request that `ensure` was last asked about gets this item from the store."""
        return self._current is not None and identifier in self._current.hits

    def allocated(self, request: Any, index: int) -> None:
        """Queue the load of an item that vLLM found room for, or take note that it is encoded here."""
        known = self._asks.get(request.request_id)
        if known is None:
            return
        want = known.wants[index]
        identifier = want.key[0]
        self._mirror.add(identifier)
        if identifier in known.hits:
            self._queue(want.key)
            self._let_go(known, want)
            return
        known.misses.pop(identifier, None)
        if self._consumer:
            self._counts.add("local_encodes")

    def finished(self, request: Any) -> None:
        """Forget a request. Copies that a load in flight reads stay."""
        known = self._asks.pop(request.request_id, None)
        self._unavailable.discard(request.request_id)
        if known is None:
            return
        if self._current is known:
            self._current = None
        for identifier, key in known.keys.items():
            if identifier in known.hits:
                self._holdings.drop(key, known.id)
            self._lookups.leave(key, known.id)

    def missing(self, request: Any) -> set[str]:
        """Return which items of a request are not on disk, or not known to be."""
        return self._checks.missing(ask(request, self._fields).keys.values())

    def plan(self, scheduled_tokens: int, freed: Iterable[str]) -> Step:
        """Return what the workers load and republish in this step.

        A step without tokens runs no model, and model runner V1 does not even show it to the connector: loads wait.
        """
        now = self._clock()
        self._lookups.settle(now)
        self._republish |= self._checks.settle(now)
        for identifier in freed:
            self._mirror.discard(identifier)
            self._spoilt.discard(identifier)
        self._upkeep.step(now)
        number, loads = self._flights.plan(carrying=scheduled_tokens > 0)
        if not scheduled_tokens:
            return Step(number, (), (), self._counters)
        republish, self._republish = self._republish, set()
        return Step(number, loads, tuple(sorted(republish)), self._counters)

    def account(self) -> set[str]:
        """Take note that one more step's output arrived; return the requests that cannot be served.

        vLLM asks once in each `update_from_output`.
        """
        self._flights.account()
        unavailable, self._unavailable = self._unavailable, set()
        if unavailable:
            self._counts.add("unavailable_requests", len(unavailable))
        return unavailable

    def acknowledge(self, number: int, failed: Iterable[str]) -> None:
        """Take note that the workers ran this step, and of loads that failed: what is in their place is no answer."""
        self._flights.account(number)
        spoilt = set(failed)
        if spoilt:
            self._spoilt |= spoilt
            self._unavailable |= {known.id for known in self._asks.values() if not spoilt.isdisjoint(known.keys)}

    def stats(self) -> Delta:
        """Return what was counted since the last time."""
        if self._worker_counts is not None:
            self._worker_counts.into(self._counts)
        self._counts.gauge(len(self._holdings))
        for hook, count in self._raised.items():
            if fresh := count - self._told.get(hook, 0):
                self._counts.reason("errors", hook, fresh)
                self._told[hook] = count
        return self._counts.take()

    def close(self) -> None:
        """Give back what is held. May be repeated."""
        self._lookups.close()
        self._holdings.clear()

    def _admit(self, request: Any, known: Ask | None) -> Ask:
        new = ask(request, self._fields)
        if known is not None:  # a streaming session that brought more media
            new.hits, new.loose, new.misses = known.hits, known.loose, known.misses
        self._asks[new.id] = new
        return new

    def _available(self, known: Ask, want: Want, now: float) -> bool:
        identifier = want.key[0]
        if self._producer and identifier in self._mirror and not self._on_disk(known, identifier, now):
            return False
        if not self._consumer:
            return True
        spoilt = identifier in self._spoilt
        if identifier not in known.hits:
            settled = self._sought(known, want, now, needed=want.bare or spoilt)
            if identifier not in known.hits:
                return settled
        if spoilt:
            self._spoilt.discard(identifier)
            self._queue(want.key)
        return True

    def _sought(self, known: Ask, want: Want, now: float, *, needed: bool) -> bool:
        """Have an item looked for. True if it was found, or if the request can go on without since it is not needed."""
        identifier = want.key[0]
        missed = known.misses.get(identifier)
        if needed and missed is not None:
            return self._fail(known)
        if not needed and (identifier in self._mirror or (missed is not None and now - missed < MISS_SECONDS)):
            return True
        if self._holdings.hold(want.key, known.id):
            known.hit(want)
            self._counts.add("hits")
            return True
        known.misses.pop(identifier, None)
        self._lookups.join(want, known.id, now)
        if identifier in known.misses:
            return self._fail(known) if needed else True
        return identifier in known.hits

    def _conclude(self, key: Key, outcome: Found | Missed, waiting: set[str], now: float) -> None:
        asks = [self._asks[request] for request in waiting if request in self._asks]
        if isinstance(outcome, Missed):
            self._counts.add("misses", len(asks))
            if outcome.reason != "absent":
                self._counts.reason("rejects", outcome.reason, len(asks))
            for known in asks:
                known.misses[key[0]] = now
            return
        self._holdings.add(key, outcome.load, outcome.source, {known.id for known in asks})
        for known in asks:
            known.hit(next(want for want in known.wants if want.key == key))
        self._counts.add("hits", len(asks))
        self._counts.add("loaded_bytes", outcome.nbytes)
        self._counts.observe("load_seconds", outcome.seconds)

    def _queue(self, key: Key) -> None:
        self._flights.queue(key)
        self._counts.add("loads")

    def _let_go(self, known: Ask, want: Want) -> None:
        if known.let_go(want):
            self._holdings.drop(want.key, known.id)

    def _fail(self, known: Ask) -> bool:
        self._unavailable.add(known.id)
        return False

    def _on_disk(self, known: Ask, identifier: str, now: float) -> bool:
        """Have an item that an encoder still holds checked, once per request; False while the answer is awaited."""
        if identifier not in known.checked:
            known.checked.add(identifier)
            self._checks.start(known.keys[identifier], now)
        self._republish |= self._checks.settle(now)
        return self._consumer or identifier not in self._checks

    def _give_back(self, source: Copy | Pin) -> None:
        if isinstance(source, Pin):
            self._upkeep.unpin(source)
        else:
            self._local.submit(lambda: self._finder.release(source))
