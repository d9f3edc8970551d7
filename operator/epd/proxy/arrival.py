"""One request on its way to the engines that answer it, and how an attempt to have it answered ended.

Values and an interface. Never sends anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from epd.proxy.affinity import Sticky
from epd.proxy.parsed import ParsedRequest
from epd.proxy.pods import Member
from epd.proxy.record import Trail
from epd.proxy.transport import Cause, Reply

NOBODY: Final = frozenset[str]()
UNSEEN: Final = frozenset({Cause.REFUSED, Cause.LOCAL})
"""Causes that say that the engine has seen nothing of the request."""


@dataclass(slots=True, init=False, eq=False)
class Arrival:
    """A request as it came. `headers` are those that engines may see; times are of the monotonic clock, in seconds.

    `tenant` is whose it is, where API keys are in force; else empty.
    """

    path: str
    request: ParsedRequest
    request_id: str
    headers: Mapping[str, str]
    arrived: float
    deadline: float
    method: str
    tenant: str
    trail: Trail
    sticky: Sticky | None
    """What it shares with requests that should meet the same engine."""

    def __init__(
        self,
        *,
        path: str,
        request: ParsedRequest,
        request_id: str,
        headers: Mapping[str, str],
        arrived: float,
        deadline: float,
        method: str = "POST",
        tenant: str = "",
        trail: Trail | None = None,
        sticky: Sticky | None = None,
    ) -> None:
        self.path = path
        self.request = request
        self.request_id = request_id
        self.headers = headers
        self.arrived = arrived
        self.deadline = deadline
        self.trail = Trail() if trail is None else trail
        self.method = method
        self.tenant = tenant
        self.sticky = sticky

    @property
    def key(self) -> str:
        """The key to choose engines of the prefill side by."""
        return self.sticky or self.request_id

    @property
    def client(self) -> str:
        """Who has its turn among others that wait."""
        return self.tenant or self.headers.get("authorization", "")


@dataclass(slots=True, init=False)
class Attempt:
    """How an attempt ended. `cause` is None where the reply counts; else `reply` is what the engine said of it.

    `failed_on` names all engines so far that took the request and failed.
    """

    cause: Cause | None
    reply: Reply | None
    failed_on: frozenset[str]

    def __init__(self, cause: Cause | None, reply: Reply | None, failed_on: frozenset[str] = NOBODY) -> None:
        self.cause = cause
        self.reply = reply
        self.failed_on = failed_on

    def after(self, failed_on: frozenset[str], asked: str) -> Attempt:
        """The attempt as one of the engine `asked`, after others `failed_on` the request."""
        if self.cause is not None and self.cause not in UNSEEN:
            failed_on |= {asked}
        return replace(self, failed_on=failed_on) if failed_on else self


class Side:
    """Makes one attempt: `PrefillSide`, or `Legs` where prefill and decode are engines of their own."""

    async def attempt(
        self, arrival: Arrival, member: Member, body: bytes | None = None, *, failed_on: frozenset[str] = NOBODY
    ) -> Attempt:
        """Have the request answered by `member`, after engines `failed_on` it.

        Raises ProxyError where that says more than an attempt could.
        """
        raise NotImplementedError
