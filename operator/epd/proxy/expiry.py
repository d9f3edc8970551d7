"""Bounds the time of many things, each of which may take as long, by one timer of the event loop for all of them.

`asyncio.timeout` makes and cancels a timer for each, which takes as long as choosing an engine twice. Since nearly all
end long before their time, one timer that looks at all that are left is enough. Never decides what follows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Expiry(Generic[T]):
    """Calls `on_due` with each thing that began `seconds` ago and has not ended. For one event loop."""

    def __init__(self, seconds: float, on_due: Callable[[T], object]) -> None:
        self._seconds = seconds
        self._on_due = on_due
        self._due: dict[T, float] = {}
        """In seconds of the monotonic clock, the first due first."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, one: T, now: float) -> None:
        """It begins `now`, in seconds of the monotonic clock."""
        self._due[one] = now + self._seconds
        if self._timer is None:
            self._arm(self._seconds)

    def end(self, one: T) -> None:
        """It has ended, if it was not due before."""
        self._due.pop(one, None)

    def _arm(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(max(0.0, seconds), self._look)

    def _look(self) -> None:
        now = time.monotonic()
        self._timer = None
        for one in [one for one, due in self._due.items() if due <= now]:
            # what is called for one may end others
            if self._due.pop(one, None) is not None:
                self._on_due(one)
        self._look_later(now)

    def _look_later(self, now: float) -> None:
        # not within `_look`, where the type checker takes the timer for None, and compiled code believes it; what is
        # called for one may have begun another
        if self._due and self._timer is None:
            self._arm(next(iter(self._due.values())) - now)
