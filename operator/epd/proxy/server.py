"""The data port: HTTP in, `Exchange` behind it, HTTP out. aiohttp glue without decisions about engines.

Routes are an allow-list: what is not in `ROUTES` never reaches an engine.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from contextlib import ExitStack
from typing import Final

from aiohttp import web

from epd.proxy.bodies import Bodies, Share
from epd.proxy.errors import (
    BodyTooLargeError,
    InvalidRequestError,
    MethodNotAllowedError,
    NotFoundError,
    OverloadedError,
    ProxyError,
    RequestTimeoutError,
    SuspendedError,
    UnavailableError,
    UnsupportedEncodingError,
)
from epd.proxy.exchange import Exchange
from epd.proxy.metrics import Metrics
from epd.proxy.prefill import Arrival
from epd.proxy.requests import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    MODELS_PATH,
    ParsedRequest,
    parse_chat,
    parse_completion,
)
from epd.proxy.settings import Settings
from epd.proxy.transport import Reply, TransportError

log = logging.getLogger(__name__)

HEALTH_PATHS: Final = frozenset({"/health", "/healthz"})
ROUTES: Final = {CHAT_PATH: "POST", COMPLETIONS_PATH: "POST", MODELS_PATH: "GET", "/health": "GET", "/healthz": "GET"}
FORWARDED: Final = ("authorization", "traceparent", "tracestate", "baggage")
"""Headers of a client that engines see. Rank headers (X-data-parallel-rank) and everything else stay here."""
GRACE_SECONDS: Final = 1.0
"""What is left to send an answer that came at the last moment, or the refusal that the time is over."""
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
"""A request id becomes part of vLLM's own and goes into logs."""


class DataPort:
    """Handles clients. `draining` makes answers close connections; `idle` is set while no request is in flight."""

    def __init__(self, *, settings: Settings, exchange: Exchange, metrics: Metrics, bodies: Bodies) -> None:
        self._settings = settings
        self._bodies = bodies
        self._exchange = exchange
        self._metrics = metrics
        self.in_flight = 0
        self.draining = False
        self.idle = asyncio.Event()
        self.idle.set()

    def application(self) -> web.Application:
        """The application to serve on the data port."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.handle)
        return app

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request, whatever it is."""
        arrived = time.monotonic()
        deadline = arrived + self._settings.limits.request_seconds
        client_id = request.headers.get("x-request-id", "")
        request_id = client_id if _REQUEST_ID.fullmatch(client_id) else uuid.uuid4().hex
        route = request.path if request.path in ROUTES else "other"
        with ExitStack() as held:
            try:
                reply = await self._reply(request, request_id, arrived, deadline, held)
                if reply.stream is not None:
                    held.callback(reply.stream.close)
            except ProxyError as error:
                log.debug("%s %s: %s %s", request_id, route, error.status, error.message)
                reply = Reply(status=error.status, headers=error.headers(), body=error.body())
            except asyncio.CancelledError:
                self._metrics.client_left()
                raise
            except Exception:
                log.exception("%s %s failed", request_id, route)
                defect = ProxyError("the proxy failed; its log says more under this request's id")
                reply = Reply(status=defect.status, headers=defect.headers(), body=defect.body())
            self._metrics.request(route=route, code=reply.status)
            reply.headers["x-request-id"] = request_id
            return await self._send(request, reply, deadline)

    async def _reply(
        self, request: web.Request, request_id: str, arrived: float, deadline: float, held: ExitStack
    ) -> Reply:
        self._check_route(request)
        if request.path in HEALTH_PATHS:
            return self._health()
        if self._settings.suspended:
            raise SuspendedError("the EPDDeployment is suspended (spec.suspend)")
        headers = _forwarded(request)
        if request.path == MODELS_PATH:
            return await self._exchange.models(headers=headers)
        limit = self._settings.limits.max_in_flight
        if self.in_flight >= limit:
            raise OverloadedError(f"{limit} requests are in flight (spec.proxy.limits.maxInFlight)")
        self.in_flight += 1
        self.idle.clear()
        held.callback(self._leave)
        # until the head of the answer is there: a stream needs its request no longer
        with self._bodies.share() as share:
            # not kept in a name: the bytes as they came are let go once they are parsed
            parsed = self._parse(request.path, await self._read(request, deadline, share))
            return await self._exchange.answer(
                Arrival(
                    path=request.path,
                    request=parsed,
                    request_id=request_id,
                    headers=headers,
                    arrived=arrived,
                    deadline=deadline,
                )
            )

    def _parse(self, path: str, body: bytearray) -> ParsedRequest:
        return parse_chat(body, policy=self._settings.media) if path == CHAT_PATH else parse_completion(body)

    def _leave(self) -> None:
        self.in_flight -= 1
        if not self.in_flight:
            self.idle.set()

    def _check_route(self, request: web.Request) -> None:
        method = ROUTES.get(request.path)
        if method is None or request.rel_url.raw_path != request.path:
            routes = ", ".join(f"{verb} {path}" for path, verb in ROUTES.items())
            raise NotFoundError(f"no route {request.path}; there are {routes}")
        if request.method != method:
            raise MethodNotAllowedError(f"{request.path} takes {method}", allowed=method)

    def _health(self) -> Reply:
        if self._settings.suspended:
            raise SuspendedError("the EPDDeployment is suspended (spec.suspend)")
        if not self._exchange.can_answer():
            raise UnavailableError("no engine of the prefill side is ready")
        return Reply(status=200, headers={"content-type": "application/json"}, body=b'{"status":"ok"}')

    async def _read(self, request: web.Request, deadline: float, share: Share) -> bytearray:
        encoding = request.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise UnsupportedEncodingError(f"a body with content-encoding {encoding} can't be read; send it plain")
        body = bytearray()
        self._admit(request.content_length or 0, share)
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                while chunk := await request.content.readany():
                    body += chunk
                    self._admit(len(body), share)
        except TimeoutError:
            raise RequestTimeoutError("the body did not arrive within spec.proxy.timeouts.request") from None
        except web.RequestPayloadError as error:
            raise InvalidRequestError(f"the body can't be read: {error}") from None
        return body

    def _admit(self, size: int, share: Share) -> None:
        limit = self._settings.limits.max_body_bytes
        if size > limit:
            raise BodyTooLargeError(f"the body is larger than {limit} bytes (spec.proxy.media.maxBodySize)")
        if size > share.size:
            share.grow(size)

    async def _send(self, request: web.Request, reply: Reply, deadline: float) -> web.StreamResponse:
        """Send the reply to its end; a stream that breaks ends without its last chunk, so none takes it for whole.

        The deadline holds here too: a client that does not read must not keep its place for ever.
        """
        response = web.StreamResponse(status=reply.status, headers=reply.headers)
        if self.draining:
            response.force_close()
        if reply.stream is None:
            response.content_length = len(reply.body)
        try:
            async with asyncio.timeout(deadline + GRACE_SECONDS - time.monotonic()):
                await self._write(request, response, reply)
        except TransportError as error:
            log.debug("a stream broke: %s", error)
            if request.transport is not None:
                request.transport.close()
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        except (asyncio.CancelledError, ConnectionError):
            self._metrics.client_left()
            raise
        return response

    async def _write(self, request: web.Request, response: web.StreamResponse, reply: Reply) -> None:
        await response.prepare(request)
        if reply.stream is None:
            # a HEAD is answered without a body, but with its length
            await response.write_eof(b"" if request.method == "HEAD" else reply.body)
            return
        while chunk := await reply.stream.read_chunk():
            await response.write(chunk)
        await response.write_eof()


def _forwarded(request: web.Request) -> dict[str, str]:
    headers = {name: request.headers[name] for name in FORWARDED if name in request.headers}
    for name, value in headers.items():
        if not value.isascii():
            raise InvalidRequestError(f"header {name} must be ASCII")
    return headers
