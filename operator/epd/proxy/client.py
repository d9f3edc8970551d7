"""aiohttp as the transport to engines. Knows nothing of what it carries and retries nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, Self

import aiohttp

from epd.proxy.transport import Call, Cause, Sink, TransportError

KEEPALIVE_SECONDS: Final = 2.5
"""Half of the 5 s after which vLLM's server closes an idle connection (VLLM_HTTP_TIMEOUT_KEEP_ALIVE), so that none is
used that is just being closed."""
CONNECT_SECONDS: Final = 5
"""Connecting within a cluster takes milliseconds; two lost SYNs (1 s + 2 s) are survived."""
READ_BUFFER_BYTES: Final = 256 * 1024
"""How much of an answer waits in memory for a slow client before the engine's connection is paused."""

_DISCONNECTS = (aiohttp.ClientError, ConnectionError)


class HttpAnswer:
    """An answer over HTTP/1.1."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self._sink: Sink
        self._pump: asyncio.Task[None] | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def read(self) -> bytes:
        """Read the whole body."""
        try:
            return await self._response.read()
        except _DISCONNECTS as error:
            raise TransportError(Cause.DISCONNECTED, str(error)) from error

    def relay(self, sink: Sink) -> None:
        """Push the body into `sink` from a task."""
        self._sink = sink
        if self._pump is None:
            self._pump = asyncio.create_task(self._push())
        elif self._pump.done():
            sink.end()

    async def _push(self) -> None:
        try:
            while chunk := await self._response.content.readany():
                self._sink.write(chunk)
                await self._flowing.wait()
        except _DISCONNECTS as error:
            self._sink.fail(TransportError(Cause.DISCONNECTED, str(error)))
        else:
            self._sink.end()

    def pause(self) -> None:
        """Stop the task."""
        self._flowing.clear()

    def resume(self) -> None:
        """Let the task go on."""
        self._flowing.set()

    def close(self) -> None:
        """Break the connection, unless the body was read to its end: then aiohttp has taken it back already."""
        if self._pump is not None:
            self._pump.cancel()
        self._response.close()


class HttpTransport:
    """A pool of connections to engines."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_SECONDS),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BUFFER_BYTES,
            # what is passed on must be what came
            auto_decompress=False,
            skip_auto_headers={"Accept-Encoding", "User-Agent"},
        )

    async def send(self, call: Call) -> HttpAnswer:
        """Send and wait for the head of the answer."""
        try:
            response = await self._session.request(
                call.method,
                call.address + call.path,
                data=(call.body if isinstance(call.body, bytes) else b"".join(call.body)) or None,
                headers=call.headers,
                allow_redirects=False,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise TransportError(Cause.REFUSED, str(error)) from error
        except _DISCONNECTS as error:
            raise TransportError(Cause.DISCONNECTED, str(error) or type(error).__name__) from error
        return HttpAnswer(response)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
