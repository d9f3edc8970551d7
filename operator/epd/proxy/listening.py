"""The data port's sockets: TCP or a unix socket, with TLS or without, from the first connection to the last.

Never reads requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path
from typing import Final

from epd.proxy.crowding import Crowd
from epd.proxy.handler import Handler
from epd.proxy.inbound import Connection

BACKLOG: Final = 4096
"""Connections that wait to be accepted: Linux's own limit since 5.4 (net.core.somaxconn)."""
HANDSHAKE_SECONDS: Final = 10.0
"""How long a TLS handshake may take: two round trips."""
POLL_SECONDS: Final = 0.1
"""Between looks at what clients have read: transports don't say when the last byte is out."""


class Listener:
    """Accepts connections for `handler`, `limit` at a time; 0 for any number."""

    def __init__(self, handler: Handler, *, context: ssl.SSLContext | None = None, limit: int = 0) -> None:
        self._handler = handler
        self._context = context
        self._handshake = HANDSHAKE_SECONDS if context is not None else None
        self._connections: Crowd[Connection] = Crowd(limit)
        self._gone = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._path: Path | None = None
        self.addresses: tuple[str, ...] = ()
        """What is listened on, as `host:port` or `unix:path`."""

    @property
    def connections(self) -> int:
        """How many there are now."""
        return len(self._connections)

    async def listen(self, host: str, port: int) -> None:
        """Listen on TCP; `::` is IPv4 too where the machine has both. Raises OSError."""
        loop = asyncio.get_running_loop()
        if host == "::" and socket.has_dualstack_ipv6():
            both = socket.create_server(("::", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
            self._server = await loop.create_server(
                self._connection, sock=both, backlog=BACKLOG, ssl=self._context, ssl_handshake_timeout=self._handshake
            )
        else:
            self._server = await loop.create_server(
                self._connection, host, port, backlog=BACKLOG, ssl=self._context, ssl_handshake_timeout=self._handshake
            )
        names = [sock.getsockname() for sock in self._server.sockets]
        self.addresses = tuple(f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}" for name in names)

    async def listen_on_path(self, path: Path) -> None:
        """Listen on a unix socket; a file that a dead process left there is replaced. Raises OSError."""
        sock = _bind(path)
        self._path = path
        self._server = await asyncio.get_running_loop().create_unix_server(
            self._connection, sock=sock, backlog=BACKLOG, ssl=self._context, ssl_handshake_timeout=self._handshake
        )
        self.addresses = (f"unix:{path}",)

    def stop(self) -> None:
        """Accept no more, and close the connections on which nothing is going on."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
            self._path = None
        for connection in self._connections.all():
            connection.close_idle()

    async def all_read(self) -> None:
        """Wait until no client has part of a reply to read."""
        while any(connection.unread for connection in self._connections.all()):  # noqa: ASYNC110 - there is no Event
            await asyncio.sleep(POLL_SECONDS)

    async def close(self, seconds: float) -> None:
        """Stop, wait so long for the last replies to be read, and break off what is left then."""
        self.stop()
        if self._connections:
            self._gone.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._gone.wait()
        for connection in self._connections.all():
            connection.abort()

    def _connection(self) -> Connection:
        return Connection(self._handler, on_made=self._connections.enter, on_lost=self._lost)

    def _lost(self, connection: Connection) -> None:
        self._connections.left(connection)
        if not self._connections:
            self._gone.set()


def _bind(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket() and not _answers(path):
            path.unlink()
        sock.bind(str(path))
    except OSError:
        sock.close()
        raise
    return sock


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            sock.connect(str(path))
        except OSError:
            return False
    return True
