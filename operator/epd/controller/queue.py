"""A keyed work queue with the rules of client-go's: one key is never worked on twice at once, and never lost.

A key that is added while it waits is not added again; added while it is worked on, it is queued once more when that
ends. Failed keys come back after a jittered exponential delay of their own. Knows nothing of Kubernetes.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Callable
from enum import IntEnum
from typing import Final

from epd.controller import metrics

BACKOFF_BASE_SECONDS: Final = 0.5
"""First retry. controller-runtime starts at 5 ms, which only makes sense with a local cache; each try here costs ten
requests to the API server."""

BACKOFF_MAX_SECONDS: Final = 300.0
"""The resync comes at this interval anyway."""

BACKOFF_JITTER: Final = 0.2
"""Up to this share is taken off each delay: objects that failed together do not come back together."""


class Priority(IntEnum):
    """Lower goes first. Resyncs must not delay what just changed."""

    NORMAL = 0
    LOW = 1


class ShutDown(Exception):  # noqa: N818 (an end, not an error)
    """The queue is shut down and hands out no more keys."""


class WorkQueue:
    """See the module. All methods must be called from the event loop's thread."""

    def __init__(
        self, name: str, *, clock: Callable[[], float] = time.monotonic, chance: Callable[[], float] = random.random
    ) -> None:
        self._name = name
        self._clock = clock
        self._chance = chance
        self._waiting: dict[Priority, OrderedDict[str, float]] = {p: OrderedDict() for p in Priority}
        self._running: dict[str, float] = {}
        self._dirty: dict[str, Priority] = {}
        self._failures: dict[str, int] = {}
        self._delayed: dict[str, tuple[float, asyncio.TimerHandle]] = {}
        self._available = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        metrics.QUEUE_LONGEST.labels(name).set_function(self.longest_running_seconds)

    def add(self, key: str, *, priority: Priority = Priority.NORMAL) -> None:
        """Queue a key; one that waits at a lower priority is moved up."""
        if self._closed:
            return
        if key in self._running:
            self._dirty[key] = min(priority, self._dirty.get(key, priority))
            return
        since = self._clock()
        for held in Priority:
            if key in self._waiting[held]:
                if held <= priority:
                    return
                since = self._waiting[held].pop(key)
        metrics.QUEUE_ADDS.labels(self._name).inc()
        self._waiting[priority][key] = since
        self._changed()

    def add_after(self, key: str, seconds: float) -> None:
        """Queue a key later; of several calls the earliest counts."""
        if self._closed:
            return
        due = self._clock() + seconds
        pending = self._delayed.get(key)
        if pending is not None:
            if pending[0] <= due:
                return
            pending[1].cancel()
        timer = asyncio.get_running_loop().call_later(seconds, self._fire, key)
        self._delayed[key] = (due, timer)

    def add_rate_limited(self, key: str, *, at_least: float = 0.0) -> float:
        """Queue a key that failed; the delay (returned, in seconds) doubles with each failure until `forget`."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        # 2**20 steps are far beyond the maximum; without the bound the float would overflow in the end.
        delay = min(BACKOFF_MAX_SECONDS, BACKOFF_BASE_SECONDS * 2.0 ** min(failures, 20))
        delay = max(at_least, delay * (1 - BACKOFF_JITTER * self._chance()))
        metrics.QUEUE_RETRIES.labels(self._name).inc()
        self.add_after(key, delay)
        return delay

    def forget(self, key: str) -> None:
        """The key succeeded: its next failure starts at the first delay again."""
        self._failures.pop(key, None)

    async def get(self) -> str:
        """The next key; it must be given back with `done`. ShutDown when the queue is closed."""
        while True:
            if self._closed:
                raise ShutDown
            for waiting in self._waiting.values():
                if waiting:
                    key, since = waiting.popitem(last=False)
                    self._running[key] = self._clock()
                    metrics.QUEUE_WAIT.labels(self._name).observe(max(0.0, self._clock() - since))
                    self._changed()
                    return key
            await self._available.wait()

    def done(self, key: str) -> None:
        """The work on a key has ended, well or not."""
        metrics.QUEUE_WORK.labels(self._name).observe(max(0.0, self._clock() - self._running.pop(key)))
        if (priority := self._dirty.pop(key, None)) is not None:
            self.add(key, priority=priority)
        self._changed()

    def shutdown(self) -> None:
        """Hand out no more keys, drop what waits. What runs may end: see `drained`."""
        self._closed = True
        for _, timer in self._delayed.values():
            timer.cancel()
        self._delayed.clear()
        for waiting in self._waiting.values():
            waiting.clear()
        self._changed()

    async def drained(self) -> None:
        """Return when no key is being worked on."""
        await self._idle.wait()

    def __len__(self) -> int:
        return sum(len(waiting) for waiting in self._waiting.values())

    @property
    def running(self) -> int:
        """How many keys are being worked on."""
        return len(self._running)

    def longest_running_seconds(self) -> float:
        """Age of the oldest key being worked on; 0 when there is none."""
        return max((self._clock() - since for since in self._running.values()), default=0.0)

    def _fire(self, key: str) -> None:
        self._delayed.pop(key, None)
        self.add(key)

    def _changed(self) -> None:
        metrics.QUEUE_DEPTH.labels(self._name).set(len(self))
        _flag(self._available, on=self._closed or len(self) > 0)
        _flag(self._idle, on=not self._running)


def _flag(event: asyncio.Event, *, on: bool) -> None:
    if on:
        event.set()
    else:
        event.clear()
