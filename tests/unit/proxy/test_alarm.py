from __future__ import annotations

import asyncio
import time

from epd.proxy.alarm import CLOCK_SECONDS, Alarm


async def test_it_calls_once_at_the_time_that_was_set_last() -> None:
    loop = asyncio.get_running_loop()
    called: asyncio.Future[float] = loop.create_future()
    # a second call would raise
    alarm = Alarm(loop, called.set_result)
    begun = time.monotonic()
    alarm.set(begun + 3600)
    alarm.set(begun + 0.01)
    alarm.set(begun + 0.03)
    now = await asyncio.wait_for(called, 10)
    assert now >= begun + 0.03
    assert now <= time.monotonic() + CLOCK_SECONDS
    await asyncio.sleep(0)


async def test_moving_it_on_arms_nothing() -> None:
    loop, armed = asyncio.get_running_loop(), []
    call_at = loop.call_at
    loop.call_at = lambda when, *rest, **more: armed.append(when) or call_at(when, *rest, **more)  # type: ignore[assignment, func-returns-value, method-assign] # a spy
    alarm = Alarm(loop, lambda now: None)
    begun = time.monotonic() + 3600
    for seconds in (0, 1, 2, 3, -1, 5):
        alarm.set(begun + seconds)
    assert (armed, alarm.due) == ([begun, begun - 1], begun + 5)
    alarm.cancel()


async def test_cancelled_it_calls_no_more() -> None:
    called: list[float] = []
    alarm = Alarm(asyncio.get_running_loop(), called.append)
    alarm.set(time.monotonic())
    alarm.cancel()
    alarm.cancel()
    await asyncio.sleep(0.01)
    assert called == []
