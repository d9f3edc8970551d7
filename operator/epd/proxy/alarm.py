"""A timer that may be moved as often as one likes: it costs an assignment, since most times never come.

Never decides what is to be done when its time has come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

CLOCK_SECONDS: Final = 0.001
"""By how much the loop's clock may be behind: uvloop counts milliseconds."""


class Alarm:
    """Calls `on_due` with the time once `due` has come; both are seconds of the monotonic clock."""

    __slots__ = ("_at", "_loop", "_on_due", "_timer", "due")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_due: Callable[[float], None]) -> None:
        self._loop = loop
        self._on_due = on_due
        self._timer: asyncio.TimerHandle | None = None
        self._at = 0.0
        self.due = 0.0

    def set(self, due: float) -> None:
        """Call at `due`, and no more at the time that was set before. A timer that runs out earlier is left alone: then
        there is mostly nothing to be done but to set the next."""
        self.due = due
        if self._timer is None or due < self._at:
            self.cancel()
            self._at = due
            self._timer = self._loop.call_at(due, self._look)

    def cancel(self) -> None:
        """Call no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        now = time.monotonic() + CLOCK_SECONDS
        if now < self.due:
            self.set(self.due)
        else:
            self._on_due(now)
