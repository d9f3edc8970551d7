"""Bounds the time of requests by one timer of the event loop for all of them.

`asyncio.timeout` makes and cancels a timer for each request, which takes as long as choosing an engine twice. Since
nearly all requests end long before their time, one timer that looks at all that are left is enough.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Bounded:
    """Work that a task does until a deadline. `cancelling` counts who else wants the task to end."""

    task: asyncio.Task[object]
    deadline: float
    cancelling: int
    expired: bool = False


class Deadlines:
    """Deadlines of the tasks of one event loop, in seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._bounded: dict[_Bounded, None] = {}
        self._next = math.inf
        self._timer: asyncio.TimerHandle | None = None

    async def hold(self, deadline: float, work: Awaitable[T]) -> T:
        """Do `work` in the current task. Raises TimeoutError once it is cancelled at `deadline`."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("deadlines are held by tasks")
        bounded = _Bounded(task, deadline, task.cancelling())
        self._bounded[bounded] = None
        if deadline < self._next:
            self._arm(deadline)
        try:
            return await work
        except asyncio.CancelledError:
            # as asyncio.timeout does: who else cancelled the task, such as a client that left, comes first
            if bounded.expired and task.uncancel() <= bounded.cancelling:
                raise TimeoutError from None
            raise
        finally:
            del self._bounded[bounded]

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = deadline
        self._timer = asyncio.get_running_loop().call_later(max(0.0, deadline - time.monotonic()), self._look)

    def _look(self) -> None:
        now = time.monotonic()
        self._timer, self._next = None, math.inf
        left = math.inf
        for bounded in self._bounded:
            if bounded.expired:
                continue
            if bounded.deadline <= now:
                bounded.expired = True
                bounded.task.cancel()
            else:
                left = min(left, bounded.deadline)
        if left < math.inf:
            self._arm(left)
