"""How fast and how long a pass may delete. Pure but for the clock and the sleep it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

BATCH: Final = 64
"""Deletions between two looks at the clock and at the stop flag: about 3 ms of an ext4 journal's time."""
_NAP: Final = 0.2
"""Seconds of sleep between two looks at the stop flag."""


class Pace:
    """A token bucket without burst, and a deadline.

    Args:
        rate: Deletions per second.
        stopping: Whether to end; asked before each batch and at least every 0.2 s of waiting.
    """

    def __init__(
        self,
        rate: float,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        stopping: Callable[[], bool],
    ) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._stopping = stopping
        self._next = 0.0
        self._deadline = 0.0

    def begin(self, seconds: float) -> None:
        """Start a slice of work that ends after `seconds`."""
        self._deadline = self._clock() + seconds

    @property
    def over(self) -> bool:
        """Whether the slice is spent, or the process is to stop."""
        return self._stopping() or self._clock() >= self._deadline

    def take(self, count: int = BATCH) -> bool:
        """Wait until `count` more deletions may be done; False: do no more of them in this slice."""
        while not self.over:
            wait = self._next - self._clock()
            if wait <= 0:
                self._next = max(self._next, self._clock() - _NAP) + count / self._rate
                return True
            self._sleep(min(wait, _NAP))
        return False
