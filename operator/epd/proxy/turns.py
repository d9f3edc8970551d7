"""One request at the data port: its head judged, its body taken in, its reply counted. Decides nothing about engines.

Routes are an allow-list (`routes.py`): what is not in it never reaches an engine.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from epd.proxy.arrival import Arrival
from epd.proxy.bodies import Share
from epd.proxy.errors import (
    BodyTooLargeError,
    InvalidRequestError,
    ProxyError,
    SuspendedError,
    UnsupportedEncodingError,
)
from epd.proxy.handler import Turn
from epd.proxy.head import Head
from epd.proxy.intake import Intake
from epd.proxy.parsed import ParsedRequest
from epd.proxy.record import Record, Trail, outcome_of
from epd.proxy.routes import Handling, Match, find
from epd.proxy.transport import Reply

if TYPE_CHECKING:
    from epd.proxy.server import DataPort

    # loaded only where traces are sent
    from epd.proxy.spans import RequestSpan

log = logging.getLogger(__name__)

OTHER_ROUTE: Final = "other"
FORWARDED: Final = ("authorization", "traceparent", "tracestate", "baggage")
"""Headers of a client that engines see. Rank headers (X-data-parallel-rank) and everything else stay here."""
FORWARDED_OF_TENANTS: Final = FORWARDED[1:]
"""Those of them where a client's Authorization is for the proxy."""
UNWANTED_LIMIT: Final = 64 << 10
"""Bytes of a body that come with a request that has no use for one; they are dropped."""
# asked of every request, and in Python 3.11 a member is found through its class ten times slower
_HEALTH: Final = Handling.HEALTH


class RequestTurn(Turn):
    """One request, from its head to the end of its reply."""

    __slots__ = (
        *("_arrived", "_code", "_entered", "_forwarded", "_intake", "_match", "_port", "_preflight", "_received"),
        *("_reply", "_request_id", "_share", "_span", "_trail", "tenant"),
    )

    def __init__(self, port: DataPort, head: Head) -> None:
        self.head = head
        self.tenant = ""
        self._port = port
        self._arrived = time.monotonic()
        self.deadline = self._arrived + port.settings.limits.request_seconds
        self._request_id = port.ids.given_or_new(head.headers.get("x-request-id"))
        self._match: Match | None = None
        self._preflight: Reply | None = None
        self._entered = False
        self._share: Share | None = None
        self._intake: Intake | None = None
        self._received = 0
        self._forwarded: dict[str, str] = {}
        self._trail = Trail()
        self._reply: Reply | None = None
        self._code: str | None = None
        self._span: RequestSpan | None = None

    def begin(self) -> None:
        """Judge the head: route, method, and whether there is room. Raises ProxyError."""
        head, port = self.head, self._port
        opened = port.settings.opened_routes
        if head.method == "OPTIONS":
            self._preflight = port.cors.preflight(head.headers)
        if self._preflight is not None:
            find(head.headers["access-control-request-method"], head.target, opened=opened)
            return self._check_unwanted(head.length or 0)
        self._match = match = find(head.method, head.target, opened=opened)
        serving = match.route.handling is not _HEALTH
        if port.tenancy is not None and serving:
            self.tenant = port.tenancy.identify(head.headers)
        if port.settings.suspended:
            raise SuspendedError("the EPDDeployment is suspended (spec.suspend)")
        # a tenant's key is known here alone
        self._forwarded = _forwarded(head.headers, FORWARDED if port.tenancy is None else FORWARDED_OF_TENANTS)
        if port.tracing is not None and serving:
            self._span = port.tracing.begin(head.method, match.route.path, head.path, self._forwarded)
        if serving:
            port.enter(self.tenant)
            self._entered = True
        if match.route.parse is None:
            return self._check_unwanted(head.length or 0)
        encoding = head.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise UnsupportedEncodingError(f"a body with content-encoding {encoding} can't be read; send it plain")
        self._share = port.bodies.share()
        self._intake = Intake(
            share=self._share,
            limit=port.settings.limits.max_body_bytes,
            algorithm=port.settings.media.hash_algorithm,
            length=head.length,
        )
        return None

    def feed(self, data: bytes) -> None:
        """Take part of the body. Raises ProxyError."""
        self._received += len(data)
        if self._intake is not None:
            self._intake.feed(data)
        else:
            self._check_unwanted(self._received)

    async def answer(self) -> Reply:
        """Answer; every failure is a reply."""
        try:
            reply = await self._answer()
        except ProxyError as error:
            return self.refuse(error)
        except Exception:
            log.exception("%s %s failed", self._request_id, self._route)
            return self.refuse(ProxyError("the proxy failed; its log says more under this request's id"))
        self._release()
        return self._complete(self._port.counted(reply, route=self._route, request_id=self._request_id))

    def refuse(self, error: ProxyError) -> Reply:
        """Answer with `error`."""
        self._code = error.error_code
        self._release()
        reply = self._port.reply_with(error, route=self._route, request_id=self._request_id, path=self.head.path)
        return self._complete(reply)

    def end(self, *, left: bool, broken: bool = False, streamed: int = 0) -> None:
        """Let go of everything, and count what became of it."""
        metrics, reply, route = self._port.metrics, self._reply, self._route
        if left:
            metrics.client_left()
        self._release()
        if self._entered:
            self._port.leave(self.tenant)
        sent = 0
        if reply is not None and self.head.method != "HEAD":
            sent = streamed if reply.stream is not None else len(reply.body)
        status = None if reply is None else reply.status
        outcome = outcome_of(status, left=left, broken=broken)
        if self.tenant and self._port.tenancy is not None:
            self._port.tenancy.ended(self.tenant, outcome, status)
        seconds = time.monotonic() - self._arrived
        metrics.ended(route, outcome, seconds=seconds, received=self._received, sent=sent)
        access_log = self._port.access_log
        logged = access_log is not None and access_log.wants(outcome)
        if not logged and self._span is None:
            return
        record = self._record(outcome, seconds, sent)
        if self._span is not None:
            self._span.end(record)
        if logged and access_log is not None:
            access_log.note(record)

    def _record(self, outcome: str, seconds: float, sent: int) -> Record:
        reply, span = self._reply, self._span
        return Record(
            request_id=self._request_id,
            method=self.head.method,
            route=self._route,
            status=None if reply is None else reply.status,
            outcome=outcome,
            seconds=seconds,
            received=self._received,
            sent=sent,
            headers={} if reply is None else reply.headers,
            tenant=self.tenant,
            trail=self._trail,
            code=self._code,
            trace_id=None if span is None else span.trace_id,
        )

    async def _answer(self) -> Reply:
        port, match = self._port, self._match
        if self._preflight is not None:
            return self._preflight
        assert match is not None  # noqa: S101 - for the type checker: `begin` has found it
        if match.route.handling is _HEALTH:
            return port.health()
        if match.response_id is not None:
            return await port.exchange.stored(self._arrival(match, ParsedRequest((b"",))), match.response_id)
        if match.route.parse is None or self._intake is None:
            client = self.tenant or self._forwarded.get("authorization", "")
            return await port.exchange.models(headers=self._forwarded, client=client, trail=self._trail)
        # in no name of its own: the bytes as they came are let go once they are parsed
        lifted, self._intake = self._intake.lifted(), None
        policy = port.settings.media if port.tenancy is None else port.tenancy.policy(self.tenant)
        parsed = match.route.parse(lifted, policy=policy)
        del lifted
        if self._span is not None:
            self._trail.model = self._span.asks(parsed)
        return await port.exchange.answer(self._arrival(match, parsed))

    def _arrival(self, match: Match, request: ParsedRequest) -> Arrival:
        return Arrival(
            path=match.target,
            method=match.route.method,
            request=request,
            request_id=self._request_id,
            headers=self._forwarded,
            arrived=self._arrived,
            deadline=self.deadline,
            tenant=self.tenant,
            trail=self._trail,
            sticky=self._port.sticky(self.head.headers, request, tenant=self.tenant) if self._port.sticky else None,
        )

    @property
    def _route(self) -> str:
        return self._match.route.path if self._match is not None else OTHER_ROUTE

    def _complete(self, reply: Reply) -> Reply:
        if "origin" in self.head.headers:
            reply.headers.update(self._port.cors.headers(self.head.headers))
        self._reply = reply
        return reply

    def _check_unwanted(self, size: int) -> None:
        if size > UNWANTED_LIMIT:
            raise BodyTooLargeError(f"{self.head.method} {self._route} takes no body")

    def _release(self) -> None:
        """Give the body's share of the memory back; a stream needs its request no longer."""
        self._intake = None
        if self._share is not None:
            self._share.release()


def _forwarded(headers: dict[str, str], names: Sequence[str]) -> dict[str, str]:
    """What engines may see. Raises InvalidRequestError."""
    named = headers.get("connection", "").lower()
    forwarded = {}
    for name in names:
        value = headers.get(name)
        # RFC 9110 section 7.6.1: what Connection names is meant for this hop alone
        if value is None or (named and name in named.replace(" ", "").split(",")):
            continue
        if not value.isascii():
            raise InvalidRequestError(f"header {name} must be ASCII")
        forwarded[name] = value
    return forwarded
