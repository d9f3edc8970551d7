"""Kept connections that were closed, on both event loops: what is sent again, and what is not."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from epd.proxy import pool
from epd.proxy.outgoing import BATCH_BYTES
from epd.proxy.pool import HttpTransport
from epd.proxy.transport import Call, Cause
from unit.proxy.calling import cause
from unit.proxy.rawengine import OK, Peer, answers, raw_engine, until

pytestmark = pytest.mark.usefixtures("patience")


@pytest.mark.parametrize("close", ["fin", "reset"])
async def test_a_kept_connection_that_was_closed_costs_a_reconnect_and_nothing_else(close: str) -> None:
    gone = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        if len(engine.peers) > 1:
            await answers(peer)
        # the next request is on its way already
        await peer.head()
        gone.set()
        if close == "reset":
            peer.reset()

    reconnects: list[int] = []
    async with (
        HttpTransport(on_reconnect=lambda: reconnects.append(1)) as transport,
        raw_engine(behave) as engine,
    ):
        await transport.send(engine.call())
        answer = await transport.send(engine.call(body=b"x"))
        assert (await answer.read(), gone.is_set()) == (b"ok", True)
        # which is kept in turn
        await until(lambda: len(transport._connections) == 1)
        assert await (await transport.send(engine.call())).read() == b"ok"
        assert (transport.opened, len(reconnects), len(engine.peers)) == (2, 1, 2)


async def test_a_large_body_is_sent_again_from_its_beginning(transport: HttpTransport) -> None:
    body = (b"a" * BATCH_BYTES * 3, b"b")
    digests = []

    async def behave(peer: Peer) -> None:
        if len(engine.peers) == 1:
            await peer.request()
            await peer.send(OK)
            await peer.head()
            peer.reset()
            return
        request = await peer.request()
        digests.append(hashlib.sha256(request.body).digest())
        await peer.send(OK)

    async with raw_engine(behave) as engine:
        await transport.send(engine.call())
        assert await (await transport.send(engine.call(body=body))).read() == b"ok"
        assert digests == [hashlib.sha256(b"".join(body)).digest()]


async def test_a_new_connection_that_breaks_is_no_stale_one(transport: HttpTransport) -> None:
    async def behave(peer: Peer) -> None:
        await peer.request()
        peer.reset()

    async with raw_engine(behave) as engine:
        assert await cause(transport, engine.call()) is Cause.DISCONNECTED
        assert len(engine.peers) == 1


@pytest.mark.interpreted
async def test_an_engine_that_breaks_late_or_after_the_first_byte_gets_nothing_twice(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        await peer.request()

    async def speaking(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        await peer.request()
        await peer.send(b"H")

    async with raw_engine(speaking) as engine:
        await transport.send(engine.call())
        assert await cause(transport, engine.call()) is Cause.DISCONNECTED
        assert len(engine.peers) == 1
    monkeypatch.setattr(pool, "STALE_SECONDS", 0)
    async with raw_engine(late) as engine:
        await transport.send(engine.call())
        assert await cause(transport, engine.call()) is Cause.DISCONNECTED
        assert len(engine.peers) == 1


async def test_an_engine_that_is_gone_after_a_stale_connection_was_not_merely_refused(transport: HttpTransport) -> None:
    server: list[asyncio.Server] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        await peer.request()
        await peer.send(OK)
        await peer.request()
        server[0].close()
        peer.reset()

    server.append(await asyncio.start_server(serve, "127.0.0.1", 0))
    call = Call(address=f"http://127.0.0.1:{server[0].sockets[0].getsockname()[1]}", path="/")
    await transport.send(call)
    # it may have seen the request, so it counts among those that failed on it
    assert await cause(transport, call) is Cause.DISCONNECTED
    assert await cause(transport, call) is Cause.REFUSED
