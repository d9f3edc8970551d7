"""Lets requests wait for an engine with room, for a while and no more than so many: in turn, fairly among clients.

Refuses with a reason what finds no place, or what has to give its place to a client that has fewer. Engines are chosen
by whoever waits.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final

from epd.proxy.errors import OverloadedError, ProxyError, UnavailableError
from epd.proxy.metrics import Metrics
from epd.proxy.pods import Member
from epd.proxy.record import Trail
from epd.proxy.rotation import Rotation

LOOK_SECONDS: Final = 0.1
"""How often those who wait look for room that no end of a request tells of: at an engine that is no longer ejected. A
tenth of the shortest ejection; of a full queue it takes a millisecond."""
_PART: Final = "\0"
"""Stands between a client and the engine or pairing that its requests wait for; no client's name has it."""

Choose = Callable[[bool], Member | None]
"""Chooses an engine: if True is given, only one that has room. Whether there is one is the same for all requests that
are confined to the same."""


@dataclass(slots=True, eq=False)
class _Waiter:
    """A request that waits. `placed` gets its engine, where a place is kept for it, or None if there is no engine.

    `number` grows from one to the next.
    """

    number: int
    choose: Choose
    placed: asyncio.Future[Member | None]


class Admission:
    """Waiting requests: first come, first served for one client; in turn among clients.

    `limit` bounds how many wait, `seconds` how long.
    """

    def __init__(self, *, rotation: Rotation, limit: int, seconds: float, metrics: Metrics) -> None:
        self._rotation = rotation
        self._load = rotation.load
        self._limit = limit
        self._seconds = seconds
        self._metrics = metrics
        self._queues: dict[str, deque[_Waiter]] = {}
        """By client, and by what its requests can wait for alone. Whose turn it is comes first."""
        self._numbers = count()
        self.waiting = 0
        self._look_timer: asyncio.TimerHandle | None = None
        rotation.members.on_change(self._look_again)

    def check(self, client: str) -> None:
        """Refuse what would find no place to wait in. Raises OverloadedError."""
        if self.waiting >= self._limit and self._last_of_most(client) is None:
            raise self._full()

    async def wait(self, client: str, choose: Choose, trail: Trail, *, only: str = "") -> Member | None:
        """Wait for an engine that has room; None if there is no engine at all any more. `trail` tells of the wait.

        `only` names the engine or pairing that `choose` is confined to: what may go to any engine must not stand behind
        what waits for one. The request has to be counted as in flight there before anything is awaited. Raises
        OverloadedError, and UnavailableError if it took too long.
        """
        self._make_room(client)
        waiter = _Waiter(next(self._numbers), choose, asyncio.get_running_loop().create_future())
        name = f"{client}{_PART}{only}" if only else client
        self._queues.setdefault(name, deque()).append(waiter)
        self.waiting += 1
        self._load.on_end = self._let_in
        self._look_later()
        begun, code = time.monotonic(), ""
        timer = asyncio.get_running_loop().call_later(self._seconds, _give_up, waiter, self._seconds)
        try:
            member = await waiter.placed
        except BaseException as error:
            self._leave(name, waiter)
            if isinstance(error, ProxyError):
                code = error.error_code
            raise
        finally:
            timer.cancel()
            seconds = time.monotonic() - begun
            self._metrics.queued(seconds)
            trail.waited(seconds, code)
        if member is not None:
            self._load.withdraw(member.name)
        return member

    async def room_at(self, engine: Member, client: str, trail: Trail) -> Member | None:
        """Wait until `engine` has room, which alone can answer; None if it is gone. Raises as `wait` does."""

        def choose(bounded: bool) -> Member | None:
            still = next((one for one in self._rotation.answering() if one.name == engine.name), None)
            return still if still is None or not bounded or self._rotation.has_room(still) else None

        if self._rotation.has_room(engine):
            return engine
        # no pairing is called that: values of labels have no slash
        return await self.wait(client, choose, trail, only=f"engine/{engine.name}")

    def _leave(self, name: str, waiter: _Waiter) -> None:
        placed = waiter.placed
        if placed.done() and not placed.cancelled() and placed.exception() is None:
            # it was let in at the same moment: the place is the next one's
            if (member := placed.result()) is not None:
                self._load.give_up(member.name)
            return
        if waiter in self._queues.get(name, ()):
            self._take_out(name, waiter)

    def _make_room(self, client: str) -> None:
        """Have room for one more of `client`. Raises OverloadedError.

        Else who sends most would keep all others from having their turns.
        """
        if self.waiting < self._limit:
            return
        last = self._last_of_most(client)
        if last is None:
            raise self._full()
        self._take_out(*last)
        last[1].placed.set_exception(self._full())

    def _last_of_most(self, client: str) -> tuple[str, _Waiter] | None:
        """The last one to wait of the client with the most, if it still has as many as `client` without that one."""
        waiting: Counter[str] = Counter()
        for name, queue in self._queues.items():
            waiting[_owner(name)] += len(queue)
        most = max(waiting, key=waiting.__getitem__, default="")
        if waiting[most] < waiting[_owner(client)] + 2:
            return None
        name = max((name for name in self._queues if _owner(name) == most), key=lambda name: len(self._queues[name]))
        last = next((waiter for waiter in reversed(self._queues[name]) if not waiter.placed.done()), None)
        return None if last is None else (name, last)

    def _full(self) -> OverloadedError:
        return OverloadedError(
            f"every engine has as many requests as it may have, and {self._limit} wait already", code="queue_full"
        )

    def _take_out(self, name: str, waiter: _Waiter) -> None:
        self._queues[name].remove(waiter)
        self._forget_empty(name)

    def _forget_empty(self, name: str) -> None:
        self.waiting -= 1
        if not self._queues[name]:
            del self._queues[name]
        if not self.waiting:
            self._load.on_end = None
            if self._look_timer is not None:
                self._look_timer.cancel()
                self._look_timer = None

    def _let_in(self) -> bool:
        """Let in the next one that there is room for; of each queue the one that came first may be."""
        full: set[str] = set()
        for name, queue in self._queues.items():
            scope = name.partition(_PART)[2]
            waiter = _first(queue) if scope not in full else None
            if waiter is None:
                continue
            member = waiter.choose(True)
            if member is not None:
                self._load.begin(member.name)
                # the place may be a trial's, of which there is one
                self._rotation.health.sent(member.name)
                self._place(name, waiter, member)
                return True
            # each end of anything looks here: no other client finds room there either
            full.add(scope)
        return False

    def _place(self, name: str, waiter: _Waiter, member: Member) -> None:
        self._take_out(name, waiter)
        # the client comes behind all others from now on, with its own requests in the order in which they came
        owner = _owner(name)
        own = [other for other in self._queues if _owner(other) == owner]
        for other in sorted(own, key=lambda each: self._queues[each][0].number):
            self._queues[other] = self._queues.pop(other)
        waiter.placed.set_result(member)

    def _look_again(self) -> None:
        """Engines came or went: let in what there is room for now, and send away what has no engine left."""
        self._let_all_in()
        for name, queue in list(self._queues.items()):
            while (waiter := _first(queue)) and waiter.choose(False) is None:
                self._take_out(name, waiter)
                waiter.placed.set_result(None)

    def _let_all_in(self) -> None:
        while self.waiting and self._let_in():
            pass

    def _look_later(self) -> None:
        if self._look_timer is None:
            self._look_timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._look_timer = None
        self._let_all_in()
        if self.waiting:
            self._look_later()


def _give_up(waiter: _Waiter, seconds: float) -> None:
    if not waiter.placed.done():
        late = UnavailableError(f"no engine had room for the request within {seconds:g} s", code="queue_timeout")
        waiter.placed.set_exception(late)


def _first(queue: deque[_Waiter]) -> _Waiter | None:
    """The first one that was not cancelled and has only not left yet."""
    return next((waiter for waiter in queue if not waiter.placed.done()), None)


def _owner(name: str) -> str:
    """The client of a queue."""
    return name.partition(_PART)[0]
