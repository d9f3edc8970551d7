"""Time that runs out: what is called, and what is not any more."""

from __future__ import annotations

import asyncio
import time

from epd.proxy.expiry import Expiry


async def test_what_has_not_ended_in_time_is_called_once() -> None:
    due: asyncio.Queue[str] = asyncio.Queue()
    expiry = Expiry[str](0.01, due.put_nowait)
    now = time.monotonic()
    for name in ("ended", "a", "b"):
        expiry.begin(name, now)
    expiry.end("ended")
    expiry.begin("later", now + 0.02)
    async with asyncio.timeout(10):
        assert [await due.get() for _ in range(3)] == ["a", "b", "later"]
    expiry.end("a")
    assert due.empty()


async def test_what_is_called_for_one_may_end_another_and_begin_a_third() -> None:
    called: list[str] = []
    over = asyncio.Event()
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    def on_due(name: str) -> None:
        called.append(name)
        if name == "first":
            expiry.end("second")
            expiry.begin("third", time.monotonic())
        else:
            over.set()

    expiry = Expiry[str](0.01, on_due)
    now = time.monotonic()
    expiry.begin("first", now)
    expiry.begin("second", now)
    async with asyncio.timeout(10):
        await over.wait()
    assert called == ["first", "third"]
    assert complaints == []
