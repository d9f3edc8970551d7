from __future__ import annotations

import asyncio

import pytest

from epd.controller.queue import Priority, ShutDown, WorkQueue


def queue() -> WorkQueue:
    return WorkQueue("test", chance=lambda: 0.0)


async def test_a_key_that_waits_is_not_added_again() -> None:
    q = queue()
    q.add("a")
    q.add("b")
    q.add("a")
    assert [await q.get(), await q.get(), len(q)] == ["a", "b", 0]


async def test_a_key_added_while_it_runs_waits_until_it_is_done() -> None:
    q = queue()
    q.add("a")
    assert await q.get() == "a"
    q.add("a")
    q.add("a")
    assert len(q) == 0
    q.done("a")
    assert [await q.get(), len(q)] == ["a", 0]


async def test_resyncs_go_last_and_are_moved_up_by_an_event() -> None:
    q = queue()
    for key in ("low1", "low2"):
        q.add(key, priority=Priority.LOW)
    q.add("normal")
    q.add("low2")
    q.add("normal", priority=Priority.LOW)
    assert [await q.get() for _ in range(3)] == ["normal", "low2", "low1"]


async def test_backoff_doubles_to_five_minutes_and_is_forgotten() -> None:
    q = queue()
    assert [q.add_rate_limited("a") for _ in range(12)] == [0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    q.forget("a")
    assert q.add_rate_limited("a") == 0.5
    assert q.add_rate_limited("b", at_least=7) == 7
    q.shutdown()


async def test_jitter_takes_up_to_a_fifth_off() -> None:
    q = WorkQueue("test", chance=lambda: 1.0)
    assert q.add_rate_limited("a") == 0.4
    q.shutdown()


async def test_of_several_delays_the_earliest_counts() -> None:
    q = queue()
    q.add_after("a", 300)
    q.add_after("a", 0)
    q.add_after("a", 200)
    async with asyncio.timeout(5):
        assert await q.get() == "a"
    q.shutdown()


async def test_a_waiting_worker_is_woken() -> None:
    q = queue()
    worker = asyncio.create_task(q.get())
    await asyncio.sleep(0)
    q.add("a")
    async with asyncio.timeout(5):
        assert await worker == "a"


async def test_shutdown_ends_workers_and_waits_for_what_runs() -> None:
    q = queue()
    q.add("a")
    await q.get()
    q.add("b")
    q.shutdown()
    q.add("c")
    with pytest.raises(ShutDown):
        await q.get()
    drained = asyncio.create_task(q.drained())
    await asyncio.sleep(0)
    assert not drained.done()
    q.done("a")
    async with asyncio.timeout(5):
        await drained
    assert len(q) == 0


async def test_the_age_of_the_oldest_running_key() -> None:
    now = 100.0
    q = WorkQueue("test", clock=lambda: now)
    q.add("a")
    await q.get()
    now = 130.0
    assert q.longest_running_seconds() == 30
    assert q.running == 1
