"""The data port: what all its requests share, and how many are in flight. What one is of them is in `turns.py`."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from functools import partial
from typing import TYPE_CHECKING, Final

from epd.proxy.access_log import AccessLog
from epd.proxy.affinity import Affinity, sticky
from epd.proxy.bodies import Bodies
from epd.proxy.cors import Cors
from epd.proxy.errors import (
    OverloadedError,
    ProxyError,
    UnavailableError,
)
from epd.proxy.exchange import Exchange
from epd.proxy.handler import Handler
from epd.proxy.head import Head
from epd.proxy.metrics import Metrics
from epd.proxy.routes import ANTHROPIC
from epd.proxy.settings import Settings
from epd.proxy.tenancy import Tenancy
from epd.proxy.transport import Reply
from epd.proxy.turns import OTHER_ROUTE, RequestTurn

if TYPE_CHECKING:
    # loaded only where traces are sent
    from epd.proxy.spans import Tracing

log = logging.getLogger(__name__)

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
"""A request id becomes part of vLLM's own and goes into logs."""
_LAST_DIGITS: Final = tuple(f"{number:03x}" for number in range(1 << 12))
"""To write a number takes longer than to find a place for its request."""


class RequestIds:
    """Ids that no other process gives: 64 random bits of this one, and a number. They are no secrets."""

    def __init__(self) -> None:
        self._process = secrets.token_hex(8)
        self._number = 0
        self._begin = ""
        """Of all ids but for their last digits."""

    def given_or_new(self, given: str | None) -> str:
        """The client's own id if it can do no harm, else a new one."""
        if given is not None and _REQUEST_ID.fullmatch(given):
            return given
        number = self._number
        self._number = number + 1
        last = number % len(_LAST_DIGITS)
        if not last:
            self._begin = f"{self._process}{number // len(_LAST_DIGITS):013x}"
        return self._begin + _LAST_DIGITS[last]


class DataPort(Handler):
    """Stands behind the clients' connections.

    `tenancy` is there where requests need API keys. `draining` makes answers close them; `idle` is set while no request
    for an engine's work is in flight.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        exchange: Exchange,
        metrics: Metrics,
        bodies: Bodies,
        tenancy: Tenancy | None = None,
        tracing: Tracing | None = None,
        access_log: AccessLog | None = None,
    ) -> None:
        self.settings = settings
        self.tenancy = tenancy
        self.tracing = tracing
        self.access_log = access_log
        self.bodies = bodies
        self.exchange = exchange
        self.metrics = metrics
        self.sticky = partial(sticky, settings.affinity) if settings.affinity is not Affinity.NONE else None
        self.cors = Cors(settings.allowed_origins)
        self.ids = RequestIds()
        self.in_flight = 0
        self.draining = False
        self.idle = asyncio.Event()
        self.idle.set()

    def turn(self, head: Head) -> RequestTurn:
        """Take a request."""
        return RequestTurn(self, head)

    def refuse(self, error: ProxyError) -> Reply:
        """Answer what is no request."""
        return self.reply_with(error, route=OTHER_ROUTE, request_id=self.ids.given_or_new(None))

    def reply_with(self, error: ProxyError, *, route: str, request_id: str, path: str = "") -> Reply:
        """Answer with `error` in the shape that clients of `path` expect."""
        log.debug("%s %s: %s %s", request_id, route, error.status, error.message)
        body = error.anthropic_body() if path in ANTHROPIC else error.body()
        reply = Reply(status=error.status, headers=error.headers(), body=body)
        return self.counted(reply, route=route, request_id=request_id)

    def counted(self, reply: Reply, *, route: str, request_id: str) -> Reply:
        """Count a reply that is about to be sent, and give it the request's id."""
        self.metrics.request(route=route, code=reply.status)
        reply.headers["x-request-id"] = request_id
        return reply

    def enter(self, tenant: str) -> None:
        """A request for an engine's work is in flight. Raises OverloadedError."""
        limit = self.settings.limits.max_in_flight
        if self.in_flight >= limit:
            raise OverloadedError(f"{limit} requests are in flight (spec.proxy.limits.maxInFlight)")
        if self.tenancy is not None:
            self.tenancy.enter(tenant)
        self.in_flight += 1
        if self.in_flight == 1:
            self.idle.clear()

    def leave(self, tenant: str) -> None:
        """One is over."""
        if self.tenancy is not None:
            self.tenancy.leave(tenant)
        self.in_flight -= 1
        if not self.in_flight:
            self.idle.set()

    def health(self) -> Reply:
        """Answer whether a request could be answered. Raises ProxyError."""
        if not self.exchange.can_answer():
            raise UnavailableError("no engine of the prefill side is ready")
        return Reply(status=200, headers={"content-type": "application/json"}, body=b'{"status":"ok"}')
