"""Finds out whether a client that sends no more still listens.

One that has left altogether looks the same as one that has closed one direction, until it is sent something. Never
decides what is sent, or what becomes of the connection: the reset that answers ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

PROBE_SECONDS: Final = 0.1
"""First pause between probes; each is twice as long as the last, up to 100 times this one."""


class Probing:
    """Calls `probe` now and after each pause, until that says that there is nothing to probe for any more."""

    __slots__ = ("_loop", "_pause", "_probe", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, probe: Callable[[], bool]) -> None:
        self._loop = loop
        self._probe = probe
        self._pause = PROBE_SECONDS
        self._timer: asyncio.TimerHandle | None = None
        self._go_on()

    def cancel(self) -> None:
        """Call no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _go_on(self) -> None:
        self._timer = None
        if self._probe():
            self._timer = self._loop.call_later(self._pause, self._go_on)
            self._pause = min(2 * self._pause, 100 * PROBE_SECONDS)
