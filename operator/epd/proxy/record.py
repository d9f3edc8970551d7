"""What is known of one request: what happened to it on its way, and how it ended. For metrics, traces, the access log.

Holds values. Decides nothing about requests and shows nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from epd.api.names import Role
from epd.proxy.transport import Cause

ANSWERED: Final = "answered"
REFUSED: Final = "refused"
"""A 4xx: of the proxy, or of the engine."""
FAILED: Final = "failed"
"""A 5xx."""
BROKEN: Final = "broken"
"""The reply began, and was not completed: its engine broke off, or the client did not read on in time."""
LEFT: Final = "left"
"""The client went before its reply was complete."""


class Retry(NamedTuple):
    """Another engine of `role` was tried, for `cause`. `at` is in nanoseconds since the epoch."""

    role: Role
    cause: Cause
    at: int


class Wait(NamedTuple):
    """It waited for room at an engine from `begun` to `ended`, in nanoseconds since the epoch.

    `code` is that of the error that ended it, empty where there was room or the client left.
    """

    begun: int
    ended: int
    code: str


class Trail:
    """What happens to one request on its way, as far as its reply does not say it.

    Without `__slots__`, since most requests have nothing to tell: class attributes cost them no time.
    """

    retries: tuple[Retry, ...] = ()
    waits: tuple[Wait, ...] = ()
    first_token: float | None = None
    """Seconds from the request's arrival to the first content of its stream."""
    prefilled: str = ""
    """The engine that prefilled last, where that is not the one that answers."""
    model: str | None = None
    """As the request names it; only known where somebody asked for it."""

    def retried(self, role: Role, cause: Cause) -> None:
        """Note that another engine is tried."""
        self.retries = (*self.retries, Retry(role, cause, time.time_ns()))

    def waited(self, seconds: float, code: str) -> None:
        """Note that a wait for room is over."""
        now = time.time_ns()
        self.waits = (*self.waits, Wait(now - int(seconds * 1e9), now, code))


@dataclass(slots=True, kw_only=True, eq=False)
class Record:
    """A request that is over. `status` is None where no reply was begun; times in seconds, sizes of bodies in bytes.

    `headers` are those of the reply, which name the engines.
    """

    request_id: str
    method: str
    route: str
    status: int | None
    outcome: str
    seconds: float
    received: int
    sent: int
    headers: Mapping[str, str]
    tenant: str
    trail: Trail
    code: str | None = None
    """Of the error, where the proxy refused."""
    trace_id: str | None = None


def outcome_of(status: int | None, *, left: bool, broken: bool) -> str:
    """Say in a word how a request ended; a value of metrics' label `outcome`."""
    if left or status is None:
        return LEFT
    if broken:
        return BROKEN
    return ANSWERED if status < 400 else REFUSED if status < 500 else FAILED
