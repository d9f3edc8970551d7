from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

import pytest

from epd.proxy.course import Course, Signal, in_task


class Ends:
    """Begins a course, and notes how it ended."""

    def __init__(self, coroutine: Coroutine[Any, None, Any]) -> None:
        self.ends: list[tuple[object, type[BaseException] | None]] = []
        self.course: Course[Any] = Course(coroutine, self._end)
        self.course.begin()

    def _end(self, result: object, error: BaseException | None) -> None:
        self.ends.append((result, error and type(error)))

    async def until_over(self) -> list[tuple[object, type[BaseException] | None]]:
        while not self.ends:  # noqa: ASYNC110 - what it waits for is the loop itself
            await asyncio.sleep(0)
        return self.ends


async def test_what_waits_for_nothing_is_over_at_once() -> None:
    async def work() -> int:
        return 7

    assert Ends(work()).ends == [(7, None)]


async def test_an_error_is_handed_on() -> None:
    async def work() -> None:
        raise ValueError

    assert Ends(work()).ends == [(None, ValueError)]


async def test_a_signal_resumes_within_its_call() -> None:
    signal = Signal(asyncio.get_running_loop())

    async def work() -> str:
        await signal
        return "on"

    run = Ends(work())
    assert run.ends == []
    signal.set_result(None)
    assert run.ends == [("on", None)]


async def test_a_signal_that_failed_raises_before_and_after() -> None:
    signal = Signal(asyncio.get_running_loop())
    waits = Ends(wait(signal))
    signal.set_exception(KeyError())
    assert waits.ends == Ends(wait(signal)).ends == [(None, KeyError)]


async def test_a_task_may_wait_for_a_signal() -> None:
    signal = Signal(asyncio.get_running_loop())
    task = asyncio.create_task(wait(signal))
    await asyncio.sleep(0)
    signal.set_result(None)
    assert await task == "done"


async def test_a_task_that_waits_for_a_signal_can_be_cancelled() -> None:
    signal = Signal(asyncio.get_running_loop())
    task = asyncio.create_task(wait(signal))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert signal.done()


async def test_futures_tasks_and_pauses_are_waited_for() -> None:
    future = asyncio.get_running_loop().create_future()

    async def work() -> list[object]:
        await asyncio.sleep(0)
        return [await future, await asyncio.create_task(wait(None))]

    run = Ends(work())
    future.set_result(3)
    assert await run.until_over() == [([3, "done"], None)]


async def test_cancelling_ends_what_waits_for_a_signal_at_once() -> None:
    run = Ends(wait(Signal(asyncio.get_running_loop())))
    run.course.cancel()
    assert run.ends == [(None, asyncio.CancelledError)]


async def test_cancelling_cancels_a_task_that_is_waited_for_and_waits_for_its_end() -> None:
    log: list[str] = []

    async def inner() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            log.append("inner")

    async def work() -> None:
        try:
            await asyncio.create_task(inner())
        finally:
            log.append("outer")

    run = Ends(work())
    await asyncio.sleep(0)
    run.course.cancel()
    assert await run.until_over() == [(None, asyncio.CancelledError)]
    assert log == ["inner", "outer"]


async def test_cancelling_comes_before_a_result_that_is_there_but_not_taken() -> None:
    future = asyncio.get_running_loop().create_future()
    run = Ends(wait(future))
    future.set_result(None)
    run.course.cancel()
    assert await run.until_over() == [(None, asyncio.CancelledError)]


@pytest.mark.parametrize("kind", ["signal", "future", "pause"])
async def test_a_course_that_is_cancelled_by_itself_ends_where_it_next_waits(kind: str) -> None:
    loop = asyncio.get_running_loop()
    waits: dict[str, Any] = {"signal": Signal(loop), "future": loop.create_future(), "pause": asyncio.sleep(0)}

    async def work() -> None:
        run.course.cancel()
        await waits.pop(kind)
        pytest.fail("it went on")

    run = Ends(asyncio.sleep(0))
    await run.until_over()
    run.ends.clear()
    run.course = Course(work(), run._end)
    run.course.begin()
    assert await run.until_over() == [(None, asyncio.CancelledError)]
    for rest in waits.values():
        getattr(rest, "close", lambda: None)()


async def test_cleaning_up_may_wait() -> None:
    cleaned = Signal(asyncio.get_running_loop())

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await cleaned

    run = Ends(work())
    run.course.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert run.ends == []
    cleaned.set_result(None)
    assert run.ends == [(None, asyncio.CancelledError)]


@pytest.mark.parametrize("rounds", range(5))
async def test_what_a_task_has_made_is_never_lost(rounds: int) -> None:
    made: list[int] = []
    unwanted: list[int] = []

    async def work() -> int:
        await asyncio.sleep(0)
        made.append(7)
        return 7

    run = Ends(in_task(work(), let_go=unwanted.append))
    for _ in range(rounds):
        await asyncio.sleep(0)
    run.course.cancel()
    [(result, _)] = await run.until_over()
    taken = [] if result is None else [result]
    assert [*taken, *unwanted] == made
    assert bool(taken) is (rounds >= 3)
    assert bool(unwanted) is (rounds == 2)


async def test_what_a_task_raises_at_the_moment_of_a_cancellation_is_nobodys() -> None:
    async def work() -> int:
        raise KeyError

    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    run = Ends(in_task(work(), let_go=lambda _: pytest.fail("there is nothing to let go of")))
    await asyncio.sleep(0)
    run.course.cancel()
    assert await run.until_over() == [(None, asyncio.CancelledError)]
    del run
    gc.collect()
    assert complaints == []


async def wait(what: Any) -> str:
    if what is not None:
        await what
    return "done"


async def test_a_course_that_is_cancelled_before_it_begins_does_nothing() -> None:
    did: list[str] = []

    async def work() -> None:
        did.append("work")

    ends: list[type[BaseException] | None] = []
    coroutine = work()
    course: Course[None] = Course(coroutine, lambda _, error: ends.append(error and type(error)))
    course.cancel()
    course.begin()
    coroutine.close()
    assert (did, ends) == ([], [asyncio.CancelledError])
