"""A bound on how many clients are connected: room is made by closing what is idle, and who finds none is told so.

Decides; `listening.py` accepts and closes.
"""

from __future__ import annotations

import logging
import resource
import time
from collections.abc import Callable, Collection
from heapq import nsmallest
from typing import Final, Generic, Protocol, TypeVar

from epd.proxy.errors import UnavailableError

log = logging.getLogger(__name__)

MOST_CONNECTIONS: Final = 8192
"""The bound if nobody gives one. A connection that is idle takes 2.8 KiB of the process, with TLS 27 KiB (measured), so
these take 213 MiB at most: less than a quarter of the container's memory."""
MOST_DESCRIPTORS: Final = 65_536
"""Up to here the process raises its own limit, as Go's runtime does: the usual 1024 is for the sake of select(2), which
nobody here uses."""
CLIENTS_ONE_IN: Final = 3
"""Share of the descriptors that clients get: a request with media needs others for its primers and for its engine."""
OWN_DESCRIPTORS: Final = 64
"""Event loop, listeners, admin port, API server, logs and files: some 20."""

SPARED_SECONDS: Final = 1.0
"""A connection that has just come, or just been answered, is about to be used."""
CLOSED_AT_ONCE: Final = 32
"""Idle connections that are closed together, so that not each new one costs a look at all. NGINX closes as many."""
LOOK_SECONDS: Final = 0.1
"""Until the next look, after one that found nothing idle."""
LEAVING_ONE_IN: Final = 8
"""Connections on their way out, of those that are let in, that may be there beyond the bound: refusals wait for their
clients to read them."""


class TooManyConnectionsError(UnavailableError):
    """As many clients are connected as may be, and each has a request in flight; another replica may have room."""

    code = "too_many_connections"
    retry_after = 1


class Occupant(Protocol):
    """A connection."""

    @property
    def idle_since(self) -> float | None:
        """Since when it has waited for a head to come, or to be whole, by the monotonic clock; None where it does not.

        A client sends a head at once. Who sends but a part of it, and has shown no key yet, must not keep others out.
        """

    def make_room(self) -> None:
        """Close, if it is idle."""

    def turn_away(self, error: UnavailableError) -> None:
        """Answer with `error` before there is a request, and close."""

    def abort(self) -> None:
        """Break off."""


One = TypeVar("One", bound=Occupant)


class Crowd(Generic[One]):
    """Those who are connected: no more than `limit`, but for a few that are leaving; 0 for any number."""

    def __init__(self, limit: int = 0, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._present: set[One] = set()
        self._leaving: set[One] = set()
        self._next_look = 0.0

    def __len__(self) -> int:
        return len(self._present) + len(self._leaving)

    def all(self) -> Collection[One]:
        """All that are there now."""
        return (*self._present, *self._leaving)

    def enter(self, newcomer: One) -> None:
        """Let it in; where that is one too many, have the longest idle leave, or else the newcomer."""
        self._present.add(newcomer)
        if not self._limit or len(self._present) <= self._limit:
            return
        if idle := self._idle():
            for occupant in idle:
                self._leave(occupant, occupant.make_room)
        else:
            error = TooManyConnectionsError(f"{self._limit} clients are connected, and none of them is idle")
            self._leave(newcomer, lambda: newcomer.turn_away(error))

    def left(self, occupant: One) -> None:
        """It is gone."""
        self._present.discard(occupant)
        self._leaving.discard(occupant)

    def _idle(self) -> list[One]:
        now = self._clock()
        if now < self._next_look:
            return []
        since = {one: at for one in self._present if (at := one.idle_since) is not None and at <= now - SPARED_SECONDS}
        if not since:
            self._next_look = now + LOOK_SECONDS
        most = max(1, min(CLOSED_AT_ONCE, self._limit // LEAVING_ONE_IN))
        return nsmallest(most, since, key=since.__getitem__)

    def _leave(self, occupant: One, how: Callable[[], None]) -> None:
        crowded = len(self._leaving) >= max(1, self._limit // LEAVING_ONE_IN)
        self._present.discard(occupant)
        self._leaving.add(occupant)
        if crowded:
            occupant.abort()
        else:
            how()


def connection_limit(asked: int | None) -> int:
    """How many clients may be connected: as many as somebody asked for, else what descriptors allow."""
    if asked is None:
        return default_limit(raise_descriptors())
    wanted = asked * CLIENTS_ONE_IN + OWN_DESCRIPTORS
    if (descriptors := raise_descriptors(max(wanted, MOST_DESCRIPTORS))) < wanted:
        log.warning(
            "%d connections may need %d file descriptors, and the process can have %d (ulimit -n): beyond that "
            "requests are answered 503",
            asked,
            wanted,
            descriptors,
        )
    return asked


def raise_descriptors(most: int = MOST_DESCRIPTORS) -> int:
    """Raise how many descriptors this process may have, up to `most` if it may have so many, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unbounded = resource.RLIM_INFINITY
    wanted = most if hard == unbounded else min(hard, most)
    if soft == unbounded or soft >= wanted:
        return most if soft == unbounded else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def default_limit(descriptors: int) -> int:
    """How many clients may be connected to a process that may have so many descriptors."""
    return max(1, min(MOST_CONNECTIONS, (descriptors - OWN_DESCRIPTORS) // CLIENTS_ONE_IN))
