"""Answers that break, wait or are left, on both event loops: how each fault is named, and who holds up whom."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

import pytest

from epd.proxy.outgoing import BATCH_BYTES
from epd.proxy.pool import HttpTransport
from epd.proxy.transport import Cause
from unit.proxy.calling import cause, only
from unit.proxy.rawengine import CHUNKED, OK, Peer, Recorder, once, raw_engine, until

pytestmark = pytest.mark.usefixtures("patience")


FAULTS: dict[str, tuple[Callable[[Peer], Awaitable[None]], Cause]] = {
    "closed at once": (once(), Cause.DISCONNECTED),
    "closed in the head": (once(b"HTTP/1.1 200 OK\r\nx"), Cause.DISCONNECTED),
    "closed in the body": (once(OK[:-1]), Cause.DISCONNECTED),
    "closed in a chunk": (once(CHUNKED, b"5\r\nab"), Cause.DISCONNECTED),
    "closed before the last chunk": (once(CHUNKED, b"2\r\nab\r\n"), Cause.DISCONNECTED),
    "garbage": (once(b"\x16\x03\x01\x00"), Cause.PROTOCOL),
    "garbage in a chunk": (once(CHUNKED, b"2\r\nab\r\nxyz\r\n"), Cause.PROTOCOL),
}


@pytest.mark.parametrize(("behave", "expected"), FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("how", ["read", "relay"])
async def test_faults_have_names(
    transport: HttpTransport, behave: Callable[[Peer], Awaitable[None]], expected: Cause, how: str
) -> None:
    async with raw_engine(behave) as engine:
        assert await cause(transport, engine.call(), relayed=how == "relay") is expected
        await until(lambda: not transport._connections)


@pytest.mark.parametrize("after", [b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200"])
async def test_a_cancelled_call_breaks_its_connection(transport: HttpTransport, after: bytes) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.request()
        await peer.send(after)
        asked.set()
        await peer.closed()
        left.set()

    async with raw_engine(behave) as engine:
        task = asyncio.create_task(transport.send(engine.call()))
        await asyncio.wait_for(asked.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(left.wait(), 10)
        await until(lambda: not transport._connections)


async def test_a_closed_answer_aborts_the_engine(transport: HttpTransport) -> None:
    left = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + b"2\r\nok\r\n")
        await peer.closed()
        left.set()

    async with raw_engine(behave) as engine:
        answer = await transport.send(engine.call())
        answer.close()
        await asyncio.wait_for(left.wait(), 10)


async def test_a_body_comes_until_the_end_of_its_connection(transport: HttpTransport) -> None:
    async with raw_engine(once(b"HTTP/1.1 200 OK\r\n\r\na", b"b", b"c")) as engine:
        answer = await transport.send(engine.call())
        assert await answer.read() == b"abc"


async def test_an_answer_may_come_before_the_body_has_gone(transport: HttpTransport) -> None:
    async def behave(peer: Peer) -> None:
        await peer.head()
        await peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        await peer.closed()

    async with raw_engine(behave) as engine:
        answer = await transport.send(engine.call(body=b"x" * (64 << 20)))
        assert (answer.status, await answer.read()) == (413, b"no")
        await until(lambda: not transport._connections)


async def test_a_large_body_waits_for_a_slow_reader(transport: HttpTransport) -> None:
    going, digests = asyncio.Event(), []

    async def behave(peer: Peer) -> None:
        await going.wait()
        request = await peer.request()
        digests.append(hashlib.sha256(request.body).digest())
        await peer.send(OK)

    body = (b"x" * (63 << 20), memoryview(b"y" * (1 << 20)))
    async with raw_engine(behave) as engine:
        task = asyncio.create_task(transport.send(engine.call(body=body)))
        await until(lambda: bool(transport._connections) and only(transport)._sender.full)
        for _ in range(100):
            assert only(transport)._transport.get_write_buffer_size() <= 2 * BATCH_BYTES
            await asyncio.sleep(0)
        going.set()
        assert await (await task).read() == b"ok"
        assert digests == [hashlib.sha256(b"".join(body)).digest()]


async def test_a_slow_sink_holds_up_the_engine(transport: HttpTransport) -> None:
    size, blocked = 64 << 20, asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.request()
        peer.writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        sent = 0
        while sent < size:
            peer.writer.write(b"x" * (1 << 20))
            sent += 1 << 20
            if peer.writer.transport.get_write_buffer_size() > 0:
                blocked.set()
            await peer.writer.drain()

    async with raw_engine(behave) as engine:
        answer = await transport.send(engine.call())
        sink = Recorder(answer, pause_at=1)
        answer.relay(sink)
        await asyncio.wait_for(blocked.wait(), 30)
        for _ in range(100):
            await asyncio.sleep(0)
        # what waited for the relay, or one read
        assert (sink.writes, len(sink.body) <= 1 << 20) == (1, True)
        answer.resume()
        assert await asyncio.wait_for(sink.over, 30) is None
        assert len(sink.body) == size
