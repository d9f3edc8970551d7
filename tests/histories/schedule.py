"""Actors in one thread, switched where they call, in virtual time: the order of everything follows from one seed.

An actor is a greenlet that runs until it waits. Each file call waits a drawn time first, so calls of several actors
interleave, and some wait for minutes: the pauses that no program can exclude. Time passes only by waiting.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from typing import Any

from greenlet import getcurrent, greenlet

SECOND = 10**9
EPOCH = 1_795_000_000 * SECOND
"""When histories begin, by the clocks of servers."""


class Killed(BaseException):
    """The process ends here, without a chance to clean up."""


class Stuck(Exception):  # noqa: N818 - says that a history does not end, whoever's fault it is
    """More steps than any history needs: something loops without an end."""


class Actor:
    """A greenlet with a name. `killed` makes it end at its next call, or now if it waits."""

    __slots__ = ("done", "greenlet", "killed", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.killed = False
        self.done = False
        self.greenlet: Any = None


class Schedule:
    """The queue of waiting actors. `now` is true time in ns."""

    def __init__(self, rng: random.Random, *, most_steps: int) -> None:
        self.rng = rng
        self.now = 0
        self.steps = 0
        self.most_steps = most_steps
        self.current: Actor | None = None
        self._queue: list[tuple[int, float, Actor]] = []
        self._hub: Any = getcurrent()

    def spawn(self, name: str, work: Callable[[], None], *, after: float = 0.0) -> Actor:
        """Start an actor that does `work`, `after` seconds from now."""
        actor = Actor(name)

        def run() -> None:
            try:
                if not actor.killed:
                    work()
            except Killed:
                pass
            finally:
                actor.done = True

        actor.greenlet = greenlet(run, self._hub)
        self._push(actor, after)
        return actor

    def _push(self, actor: Actor, after: float) -> None:
        heapq.heappush(self._queue, (self.now + int(after * SECOND), self.rng.random(), actor))

    def wait(self, seconds: float) -> None:
        """Let `seconds` pass for the running actor; others run meanwhile. Raises Killed."""
        actor = self.current
        if actor is None:  # set-up and inspection happen at one moment
            return
        due = self.now + int(seconds * SECOND)
        if self._queue and self._queue[0][0] <= due:
            heapq.heappush(self._queue, (due, self.rng.random(), actor))
            self._hub.switch()
            if actor.killed:
                raise Killed
            return
        self.now = due
        self.steps += 1
        if self.steps > self.most_steps:
            self._stuck()

    def _stuck(self) -> None:
        raise Stuck(f"more than {self.most_steps} steps; running: {self.current and self.current.name}")

    def kill(self, actor: Actor) -> None:
        """End an actor. Itself at once, another one when it would go on."""
        actor.killed = True
        if actor is self.current:
            raise Killed

    def run(self, until: Callable[[], bool]) -> None:
        """Run until the condition holds between two steps, or nobody is left."""
        while self._queue and not until():
            self.steps += 1
            due, _, actor = heapq.heappop(self._queue)
            self.now = max(self.now, due)
            self.current = actor
            try:
                actor.greenlet.switch()
            finally:
                self.current = None

    def finish(self) -> None:
        """End all actors, so that no greenlet outlives its history."""
        while self._queue:
            _, _, actor = heapq.heappop(self._queue)
            actor.killed = True
            self.current = actor
            actor.greenlet.switch()
            self.current = None

    def log_uniform(self, low: float, high: float) -> float:
        """Draw a duration whose order of magnitude is uniform."""
        return low * math.exp(self.rng.random() * math.log(high / low))
