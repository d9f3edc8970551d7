"""An engine of raw bytes over real sockets: what it reads and writes is up to the test."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from epd.proxy.prefill import EngineStream
from epd.proxy.transport import Answer, Call, TransportError

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass
class Received:
    """One request as it came."""

    head: bytes
    body: bytes


@dataclass
class Peer:
    """The engine's end of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def head(self) -> bytes:
        return await self.reader.readuntil(b"\r\n\r\n")

    async def request(self) -> Received:
        """Read one request. Raises IncompleteReadError when the connection ends instead."""
        head = await self.head()
        lengths = [line.split(b": ")[1] for line in head.split(b"\r\n") if line.startswith(b"content-length: ")]
        return Received(head, await self.reader.readexactly(int(lengths[0]) if lengths else 0))

    async def send(self, *pieces: bytes) -> None:
        """Write each piece by itself."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def closed(self) -> None:
        """Wait until the proxy's end is closed."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass

    def reset(self) -> None:
        """Close with RST."""
        self.writer.transport.abort()


@dataclass
class RawEngine:
    """`peers` has all connections so far, `finished` the number of those whose `behave` has returned."""

    behave: Callable[[Peer], Awaitable[None]]
    address: str = ""
    peers: list[Peer] = field(default_factory=list)
    finished: int = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        self.peers.append(peer)
        try:
            await self.behave(peer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except asyncio.CancelledError:
            # the test is over; asyncio's streams would complain of it
            pass
        finally:
            self.finished += 1
            writer.close()

    def call(self, path: str = "/v1/x", **fields: object) -> Call:
        return Call(address=self.address, path=path, **fields)  # type: ignore[arg-type] # the test names fields of Call


@asynccontextmanager
async def raw_engine(
    behave: Callable[[Peer], Awaitable[None]],
    *,
    host: str = "127.0.0.1",
    unix: str = "",
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[RawEngine]:
    """Serve; each connection is given to `behave`, and closed when that returns."""
    engine = RawEngine(behave)
    limit = 1 << 17
    if unix:
        server = await asyncio.start_unix_server(engine._serve, unix, limit=limit)
        engine.address = f"unix:{unix}"
    else:
        server = await asyncio.start_server(engine._serve, host, 0, ssl=tls, limit=limit)
        port = server.sockets[0].getsockname()[1]
        name = f"[{host}]" if ":" in host else host
        engine.address = f"http{'s' if tls else ''}://{name}:{port}"
    try:
        yield engine
    finally:
        server.close()
        for peer in engine.peers:
            peer.writer.transport.abort()


async def answers(peer: Peer) -> None:
    """Answer every request with OK."""
    while True:
        await peer.request()
        await peer.send(OK)


def once(*pieces: bytes) -> Callable[[Peer], Awaitable[None]]:
    """Answer one request with `pieces`, then close."""

    async def behave(peer: Peer) -> None:
        await peer.request()
        await peer.send(*pieces)

    return behave


class Recorder:
    """A sink that keeps what it gets, and whether it got it while it was paused."""

    def __init__(self, answer: Answer | EngineStream | None = None, *, pause_at: int | None = None) -> None:
        self.body = bytearray()
        self.writes = 0
        self.over: asyncio.Future[TransportError | None] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self._pause_at = pause_at

    def write(self, data: bytes) -> None:
        assert data
        assert not self.over.done() or self.over.cancelled()
        self.body += data
        self.writes += 1
        if self._answer is not None and self._pause_at is not None and len(self.body) >= self._pause_at:
            self._pause_at = None
            self._answer.pause()

    def end(self) -> None:
        self._finish(None)

    def fail(self, error: TransportError) -> None:
        self._finish(error)

    def _finish(self, error: TransportError | None) -> None:
        # whoever waits may be cancelled, and about to close what pushes
        if not self.over.cancelled():
            self.over.set_result(error)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what no Event announces, at most 10 s."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - buffers and counters have no Event to wait for
            await asyncio.sleep(0)
