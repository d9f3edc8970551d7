"""A clock that tests set."""

from __future__ import annotations


class Clock:
    """Seconds that pass when told to."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass as a sleep would."""
        self.now += seconds
