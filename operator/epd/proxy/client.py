"""aiohttp as the transport to engines. Knows nothing of what it carries and retries nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

import aiohttp

from epd.proxy.transport import Call, Cause, TransportError

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

    async def read(self) -> bytes:
        """Read the whole body."""
        try:
            return await self._response.read()
        except _DISCONNECTS as error:
            raise TransportError(Cause.DISCONNECTED, str(error)) from error

    async def read_chunk(self) -> bytes:
        """Return what has come since the last call, b"" at the end."""
        try:
            return await self._response.content.readany()
        except _DISCONNECTS as error:
            raise TransportError(Cause.DISCONNECTED, str(error)) from error

    def close(self) -> None:
        """Break the connection, unless the body was read to its end: then aiohttp has taken it back already."""
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
                data=call.body or None,
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
