from __future__ import annotations

import asyncio
import time

import pytest

from epd.proxy.deadlines import Deadlines


async def forever() -> None:
    await asyncio.Event().wait()


async def test_work_that_ends_in_time() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    assert await Deadlines().hold(time.monotonic() + 60, work()) == 7


async def test_each_ends_at_its_own_time() -> None:
    deadlines, now = Deadlines(), time.monotonic()
    ended: list[float] = []

    async def bounded(seconds: float) -> None:
        with pytest.raises(TimeoutError):
            await deadlines.hold(now + seconds, forever())
        ended.append(seconds)

    # the first timer is for the last of them, and one has been over from the start
    await asyncio.gather(*(bounded(seconds) for seconds in (0.06, 0.02, -1, 0.04)))
    assert ended == [-1, 0.02, 0.04, 0.06]


async def test_the_timer_goes_on_for_who_is_left() -> None:
    deadlines, now = Deadlines(), time.monotonic()
    # its end leaves the timer, which then has to find the other
    await deadlines.hold(now + 0.01, asyncio.sleep(0))
    with pytest.raises(TimeoutError):
        await deadlines.hold(now + 0.03, forever())


async def test_a_client_that_leaves_is_no_timeout() -> None:
    deadlines = Deadlines()
    task = asyncio.create_task(deadlines.hold(time.monotonic() + 60, forever()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_who_cancels_first_wins() -> None:
    deadlines = Deadlines()
    reached = asyncio.Event()

    async def stubborn() -> None:
        try:
            await forever()
        finally:
            reached.set()
            await asyncio.sleep(0.05)

    task = asyncio.create_task(deadlines.hold(time.monotonic() + 0.03, stubborn()))
    await asyncio.sleep(0)
    task.cancel()
    await reached.wait()
    with pytest.raises((asyncio.CancelledError, TimeoutError)) as caught:
        await task
    assert caught.type is asyncio.CancelledError


async def test_a_timeout_within_is_its_own() -> None:
    async def work() -> str:
        try:
            async with asyncio.timeout(0.01):
                await forever()
        except TimeoutError:
            return "inner"
        return "none"

    assert await Deadlines().hold(time.monotonic() + 60, work()) == "inner"

    async def outlives() -> None:
        async with asyncio.timeout(60):
            await forever()

    with pytest.raises(TimeoutError):
        await Deadlines().hold(time.monotonic() + 0.01, outlives())
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
