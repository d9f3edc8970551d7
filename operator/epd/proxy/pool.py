"""Connections to engines: opened when needed, kept for the next call, closed before the engine would.

Sends calls over them, each once; once more only where a kept connection turns out to have been closed. Chooses no
engine and bounds no load.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol, Self
from urllib.parse import urlsplit

from epd.proxy.answers import EngineAnswer
from epd.proxy.course import in_task
from epd.proxy.engine_tls import Complaints
from epd.proxy.framing import call_head
from epd.proxy.transport import Call, Cause, Transport, TransportError
from epd.proxy.upstream import EngineConnection

KEEPALIVE_SECONDS: Final = 2.5
"""Half of the 5 s after which vLLM's server closes an idle connection (VLLM_HTTP_TIMEOUT_KEEP_ALIVE), so that none is
used that is just being closed."""
CONNECT_SECONDS: Final = 5
"""Connecting within a cluster takes milliseconds; two lost SYNs (1 s + 2 s) are survived."""
STALE_SECONDS: Final = 1.0
"""That a connection had been closed shows within a round trip. One that breaks later than this had an engine that died,
perhaps of the request, so only the caller may decide whether another engine gets it."""
SWEEP_SECONDS: Final = 0.1
"""Least time between two searches for connections that were idle for too long."""

_LIFE_SIGNS: Final = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""A node that vanishes closes no connection. So its engines are given up after 30 s instead of the request's time."""
_OF_OUR_OWN: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
"""Reasons why no connection came about that lie on this side (connect(2), socket(2)): too many descriptors, no memory,
no port left for another connection to the same engine."""

Connect = Callable[[Callable[[], EngineConnection]], Awaitable[tuple[Any, EngineConnection]]]


class Tls(Protocol):
    """How to secure connections; looked at for each new one."""

    context: ssl.SSLContext
    server_name: str
    """What certificates have to show, if it is not the host of the address."""
    anonymous: bool
    """Whether engines are shown no certificate."""


class _Engine:
    """One address: how to connect, the lines that each head to it has, and its connections."""

    __slots__ = ("address", "connect", "kept", "lines", "open", "secure")

    def __init__(self, address: str, *, host: str, connect: Connect) -> None:
        self.address = address
        self.secure = address.startswith("https:")
        self.connect = connect
        self.lines = f"host: {host}\r\naccept: */*\r\n"
        self.kept: deque[EngineConnection] = deque()
        """Idle connections, those that are idle for longest first."""
        self.open = 0


class HttpTransport(Transport):
    """A pool of connections to engines.

    `tls` is for addresses with https; why it fails is logged once per engine. `on_reconnect` is called for each call
    that is sent again because its connection was closed. `opened` counts all connections that were opened.
    """

    def __init__(self, *, tls: Tls | None = None, on_reconnect: Callable[[], None] = lambda: None) -> None:
        self.opened = 0
        self._tls = tls
        self._complaints = Complaints()
        self._on_reconnect = on_reconnect
        self._engines: dict[str, _Engine] = {}
        self._connections: set[EngineConnection] = set()
        self._sweep: asyncio.TimerHandle | None = None

    async def send(self, call: Call) -> EngineAnswer:
        """Send and wait for the head of the answer. Raises ValueError for a call that can't be written as HTTP."""
        engine = self._engines.get(call.address) or self._engine(call.address)
        size = len(call.body) if isinstance(call.body, bytes) else sum(map(len, call.body))
        head = call_head(call, engine.lines, size)
        stale = None
        begun = time.monotonic()
        if (kept := _take(engine, begun)) is not None:
            # not by `_ask`: each coroutine on the way costs every request a microsecond
            answer = kept.ask(head, call.body, size, bodyless=call.method == "HEAD")
            try:
                await answer.arrived
            except asyncio.CancelledError:
                answer.close()
                raise
            except TransportError as error:
                if kept.heard or time.monotonic() - begun > STALE_SECONDS:
                    raise
                stale = error
            else:
                return answer
            self._on_reconnect()
        return await self._send_anew(engine, call, head, size, stale)

    async def _send_anew(
        self, engine: _Engine, call: Call, head: bytes, size: int, stale: TransportError | None
    ) -> EngineAnswer:
        """Send over a new connection, after a kept one had turned out to be `stale`."""
        try:
            connection = await self._connect(engine)
        except TransportError as error:
            if stale is None or error.cause is Cause.LOCAL:
                raise
            # the engine may have seen the call, so it is not one that was refused
            raise stale from error
        try:
            answer = await _ask(connection, call, head, size)
        except TransportError as error:
            if not connection.heard and isinstance(error.__cause__, ssl.SSLError):
                # with TLS 1.3 an engine says only after the handshake that it refuses this side's certificate
                raise self._untrusted(engine, error.__cause__) from error
            if not connection.heard:
                self._suspect(engine)
            raise
        self._complaints.succeeded(engine.address)
        return answer

    def close(self) -> None:
        """Break all connections; answers that are not complete fail."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for connection in tuple(self._connections):
            connection.break_off(TransportError(Cause.DISCONNECTED, "the transport was closed"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def _engine(self, address: str) -> _Engine:
        loop = asyncio.get_running_loop()
        if address.startswith("unix:"):
            unix = partial(loop.create_unix_connection, path=address.removeprefix("unix:"))
            engine = _Engine(address, host="localhost", connect=unix)
        else:
            parts = urlsplit(address)
            secure = address.startswith("https:")
            if secure and self._tls is None:
                raise TransportError(Cause.REFUSED, f"{address}: no TLS to engines is configured")
            where = {"host": parts.hostname, "port": parts.port or (443 if secure else 80)}
            tls = self._tls if secure else None
            connect = partial(loop.create_connection, **where) if tls is None else _secured(tls, where)
            engine = _Engine(address, host=parts.netloc.rpartition("@")[2], connect=connect)
        self._engines[address] = engine
        return engine

    async def _connect(self, engine: _Engine) -> EngineConnection:
        # it may have been forgotten, and known again, while a stale connection was tried
        engine = self._engines.setdefault(engine.address, engine)
        factory = partial(EngineConnection, on_free=partial(self._keep, engine), on_lost=partial(self._lost, engine))
        engine.open += 1
        try:
            # asyncio's timeouts need a Task
            made = _in_time(engine.connect, factory)
            transport, connection = await in_task(made, let_go=lambda unwanted: unwanted[1].abort())
        except BaseException as error:
            self._count_out(engine)
            if isinstance(error, ssl.SSLError):
                raise self._untrusted(engine, error) from error
            if isinstance(error, (OSError, UnicodeError)):
                ours = isinstance(error, OSError) and error.errno in _OF_OUR_OWN
                message = str(error) or f"no connection in {CONNECT_SECONDS} s"
                raise TransportError(Cause.LOCAL if ours else Cause.REFUSED, message) from error
            raise
        if connection.closed:
            # closed within the step of the loop that it takes to get here
            self._count_out(engine)
            # the loop tells in its next step why
            await asyncio.create_task(asyncio.sleep(0))
            if isinstance(connection.fault, ssl.SSLError):
                raise self._untrusted(engine, connection.fault) from connection.fault
            self._suspect(engine)
            raise TransportError(Cause.REFUSED, "the engine closed the connection at once")
        self.opened += 1
        self._connections.add(connection)
        _watch_over(transport.get_extra_info("socket"))
        return connection

    def _untrusted(self, engine: _Engine, error: ssl.SSLError) -> TransportError:
        return TransportError(Cause.REFUSED, f"no TLS: {self._complaints.failed(engine.address, error)}")

    def _suspect(self, engine: _Engine) -> None:
        """An engine has hung up on a new connection, and may want a certificate."""
        if engine.secure and self._tls is not None and self._tls.anonymous:
            self._complaints.hung_up(engine.address)

    def _keep(self, engine: _Engine, connection: EngineConnection) -> None:
        connection.idle_since = time.monotonic()
        engine.kept.append(connection)
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(KEEPALIVE_SECONDS, self._close_idle)

    def _lost(self, engine: _Engine, connection: EngineConnection) -> None:
        if connection not in self._connections:
            return  # it broke before it was ours
        self._connections.discard(connection)
        if connection in engine.kept:
            engine.kept.remove(connection)
        self._count_out(engine)

    def _count_out(self, engine: _Engine) -> None:
        """Forget an address that nothing is left of: pods come and go."""
        engine.open -= 1
        if not engine.open:
            self._engines.pop(engine.address, None)

    def _close_idle(self) -> None:
        now = time.monotonic()
        oldest = now
        for engine in self._engines.values():
            while engine.kept and engine.kept[0].idle_since <= now - KEEPALIVE_SECONDS:
                engine.kept.popleft().abort()
            if engine.kept:
                oldest = min(oldest, engine.kept[0].idle_since)
        wait = max(SWEEP_SECONDS, oldest + KEEPALIVE_SECONDS - now)
        idle = any(engine.kept for engine in self._engines.values())
        self._sweep = asyncio.get_running_loop().call_later(wait, self._close_idle) if idle else None


def _secured(tls: Tls, where: Mapping[str, Any]) -> Connect:
    """Connect with what `tls` is by then."""
    loop, host = asyncio.get_running_loop(), where["host"]

    def connect(factory: Callable[[], EngineConnection]) -> Awaitable[tuple[Any, EngineConnection]]:
        return loop.create_connection(factory, **where, ssl=tls.context, server_hostname=tls.server_name or host)

    return connect


async def _in_time(connect: Connect, factory: Callable[[], EngineConnection]) -> tuple[Any, EngineConnection]:
    async with asyncio.timeout(CONNECT_SECONDS):
        return await connect(factory)


async def _ask(connection: EngineConnection, call: Call, head: bytes, size: int) -> EngineAnswer:
    answer = connection.ask(head, call.body, size, bodyless=call.method == "HEAD")
    try:
        await answer.arrived
    except asyncio.CancelledError:
        answer.close()
        raise
    return answer


def _take(engine: _Engine, now: float) -> EngineConnection | None:
    """Take the connection that was used last: the others may then grow old and go."""
    while engine.kept:
        connection = engine.kept.pop()
        if not connection.closed and now - connection.idle_since < KEEPALIVE_SECONDS:
            return connection
        connection.abort()
    return None


def _watch_over(sock: socket.socket | None) -> None:
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _LIFE_SIGNS.items():
        if hasattr(socket, name):  # not everywhere that Python runs
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
