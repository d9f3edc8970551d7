"""Loads on their way: queued for a step, carried by it, and landed once its output arrived. Pure bookkeeping.

A load in flight holds what it reads. For the scheduler's thread.
"""

from __future__ import annotations

from collections import deque

from .holdings import QUEUED, Holdings, Key, Load


class Flights:
    """The loads of steps that are not accounted. vLLM accounts steps in the order in which they were planned."""

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._queued: dict[Key, Load] = {}
        self._planned = 0
        self._accounted = 0
        self._flying: deque[tuple[int, tuple[Key, ...]]] = deque()

    def queue(self, key: Key) -> None:
        """Have the next step that runs carry a load. Raises KeyError for what is not held."""
        self._queued[key] = self._holdings.load(key)
        self._holdings.hold(key, QUEUED)

    def plan(self, *, carrying: bool) -> tuple[int, tuple[Load, ...]]:
        """Return the number of a new step, counted from 1, and its loads: what is queued, if it carries any."""
        self._planned += 1
        if not carrying or not self._queued:
            return self._planned, ()
        loads, self._queued = self._queued, {}
        for key in loads:
            self._holdings.hold(key, self._planned)
            self._holdings.drop(key, QUEUED)
        self._flying.append((self._planned, tuple(loads)))
        return self._planned, tuple(loads.values())

    def account(self, number: int | None = None) -> None:
        """Let go what steps up to this one carried; None is one more step than so far."""
        upto = self._accounted + 1 if number is None else number
        self._accounted = max(self._accounted, min(upto, self._planned))
        while self._flying and self._flying[0][0] <= self._accounted:
            step, keys = self._flying.popleft()
            for key in keys:
                self._holdings.drop(key, step)
