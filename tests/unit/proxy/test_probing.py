from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from epd.proxy.probing import PROBE_SECONDS, Probing


class Loop(asyncio.SelectorEventLoop):
    """Notes the pauses; they are over when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []
        self.callbacks: list[Callable[..., object]] = []
        self.timers: list[asyncio.TimerHandle] = []

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any, **more: Any) -> asyncio.TimerHandle:
        self.pauses.append(delay)
        self.callbacks.append(callback)
        self.timers.append(super().call_later(3600, callback, *args, **more))
        return self.timers[-1]


def test_it_asks_at_once_and_then_ever_more_rarely() -> None:
    loop, asked = Loop(), []
    Probing(loop, lambda: asked.append(1) is None)
    assert len(asked) == 1
    for _ in range(10):
        loop.callbacks[-1]()
    assert len(asked) == 11
    longest = 100 * PROBE_SECONDS
    assert loop.pauses == [PROBE_SECONDS * 2**number for number in range(7)] + [longest] * 4
    loop.close()


def test_it_ends_when_there_is_nothing_to_ask_for() -> None:
    loop = Loop()
    Probing(loop, lambda: not loop.pauses)
    loop.callbacks[-1]()
    assert loop.pauses == [PROBE_SECONDS]
    loop.close()


def test_cancelled_it_asks_no_more() -> None:
    loop = Loop()
    probing = Probing(loop, lambda: True)
    probing.cancel()
    probing.cancel()
    assert [timer.cancelled() for timer in loop.timers] == [True]
    loop.close()
