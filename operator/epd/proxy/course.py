"""Runs a coroutine by the callbacks of what it waits for: what an asyncio.Task does, at a fifth of the price.

A request mostly waits once, for its engine. A Task costs it three rounds of the event loop and an entry in a weak set;
here the bytes that are waited for resume it themselves. What asks for the current Task, such as `asyncio.timeout`, has
to be awaited in one (`in_task`). Never decides what becomes of a result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

_OVER: Final = object()
"""What a coroutine never waits for."""

OnDone = Callable[[T | None, BaseException | None], None]
"""Is given the result, or the error."""


class Signal:
    """Something that one waits for, like an asyncio.Future without a result: a course that does goes on within the call
    that gives the signal, a Task in the loop's next round."""

    __slots__ = ("_asyncio_future_blocking", "_done", "_error", "_loop", "_wake")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        """How a Task knows that it is to wait (asyncio/futures.py)."""
        self._loop = loop
        self._done = False
        self._error: BaseException | None = None
        self._wake: Callable[[], object] | None = None

    def done(self) -> bool:
        """Whether it was given, failed or cancelled."""
        return self._done

    def exception(self) -> BaseException | None:
        """Why it failed, if it did."""
        return self._error

    def result(self) -> None:
        """Raise the error, if it failed."""
        if self._error is not None:
            raise self._error

    def set_result(self, _: None) -> None:
        """Give it."""
        self._settle(None)

    def set_exception(self, error: BaseException) -> None:
        """Fail it."""
        self._settle(error)

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002 - as a Task calls it
        """Wake who waits with CancelledError. Says whether it was not done yet."""
        if self._done:
            return False
        self._settle(asyncio.CancelledError())
        return True

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """A Task waits only for what is of its own loop."""
        return self._loop

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Any = None) -> None:
        """Have a Task wait."""
        self._wake = lambda: self._loop.call_soon(callback, self, context=context)

    def wakes(self, resume: Callable[[], object]) -> None:
        """Have a course wait."""
        self._wake = resume

    def __await__(self) -> Generator[Any, None, None]:
        if not self._done:
            self._asyncio_future_blocking = True
            yield self
        if self._error is not None:
            raise self._error

    def _settle(self, error: BaseException | None) -> None:
        self._done = True
        self._error = error
        if self._wake is not None:
            wake, self._wake = self._wake, None
            wake()


def _nothing(_: object) -> None:
    """What lets go of what holds nothing."""


async def in_task(work: Coroutine[Any, Any, T], *, let_go: Callable[[T], object] = _nothing) -> T:
    """Do `work` in a Task of its own.

    Between its end and the next step of who waits is a round of the event loop. Who is cancelled in it never gets the
    result, so `let_go` does.
    """
    task = asyncio.create_task(work)
    try:
        return await task
    except asyncio.CancelledError:
        if task.done() and not task.cancelled() and task.exception() is None:
            let_go(task.result())
        raise


class Course(Generic[T]):
    """One coroutine. `on_done` is called once, with its result or error, perhaps within `begin` or `cancel`."""

    __slots__ = ("_cancelled", "_error", "_on_done", "_result", "_steps", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, None, T], on_done: OnDone[T]) -> None:
        self._steps = self._run(coroutine).__await__()
        self._on_done = on_done
        self._result: T | None = None
        self._error: BaseException | None = None
        self._waits_for: Signal | asyncio.Future[Any] | None = None
        self._cancelled = False
        """Whether it is to be cancelled when it next goes on."""

    def begin(self) -> None:
        """Run it up to where it has to wait."""
        self._resume()

    def cancel(self) -> None:
        """Have what it waits for raise CancelledError, as cancelling a Task does."""
        if self._waits_for is None or not self._waits_for.cancel():
            self._cancelled = True

    async def _run(self, coroutine: Coroutine[Any, None, T]) -> None:
        # kept here, since a coroutine that was awaited hands its result over without an exception
        try:
            self._result = await coroutine
        except (Exception, asyncio.CancelledError) as error:
            self._error = error

    def _resume(self, _: object = None) -> None:
        self._waits_for = None
        if self._cancelled:
            self._cancelled = False
            waits_for = self._broken_off()
        else:
            waits_for = next(self._steps, _OVER)
        if waits_for is _OVER:
            self._on_done(self._result, self._error)
        else:
            self._wait(waits_for)

    def _broken_off(self) -> Any:
        """Have what it waits for raise CancelledError."""
        try:
            return self._steps.throw(asyncio.CancelledError())
        except StopIteration:
            return _OVER
        except asyncio.CancelledError as error:
            # it had not begun
            self._error = error
            return _OVER

    def _wait(self, waits_for: Signal | asyncio.Future[Any] | None) -> None:
        if type(waits_for) is Signal:
            waits_for.wakes(self._resume)
        elif waits_for is not None:
            # what a Task does for its own waiting: the future checks that it is awaited, not merely iterated over
            waits_for._asyncio_future_blocking = False
            waits_for.add_done_callback(self._resume)
        else:
            # asyncio.sleep(0)
            asyncio.get_running_loop().call_soon(self._resume)
        self._waits_for = waits_for
        if self._cancelled and waits_for is not None and waits_for.cancel():
            self._cancelled = False
