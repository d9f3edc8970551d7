"""Connections that don't come about, on both event loops: whose fault it is, and what is left."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
from collections.abc import Callable

import pytest

from epd.proxy import pool
from epd.proxy.pool import HttpTransport
from epd.proxy.transport import Call, Cause
from epd.proxy.upstream import EngineConnection
from unit.proxy.calling import cause
from unit.proxy.rawengine import OK, Peer, answers, raw_engine, until

pytestmark = pytest.mark.usefixtures("patience")


async def refused() -> str:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{sock.getsockname()[1]}"


@pytest.mark.parametrize("address", ["", "unix:/nonexistent/socket", "http://name.invalid:1", "https://127.0.0.1:1"])
async def test_no_connection_is_a_refusal(transport: HttpTransport, address: str) -> None:
    call = Call(address=address or await refused(), path="/")
    assert await cause(transport, call) is Cause.REFUSED
    assert transport._engines == {}


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL])
async def test_what_this_side_lacks_is_no_refusal(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    async def connect(_: object) -> None:
        raise OSError(number, "lacking")

    async with raw_engine(answers) as engine:
        monkeypatch.setattr(transport._engine(engine.address), "connect", connect)
        assert await cause(transport, engine.call()) is Cause.LOCAL
        assert transport._engines == {}


async def test_too_many_descriptors_are_no_refusal(transport: HttpTransport) -> None:
    async with raw_engine(answers) as engine:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        # the number that the next descriptor would have
        os.close(following := os.dup(0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (following, hard))
        try:
            found = await cause(transport, engine.call())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert found is Cause.LOCAL
        assert (await transport.send(engine.call())).status == 200


async def test_a_stale_connection_whose_successor_this_side_lacks_is_not_the_engines_fault(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def behave(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        await peer.request()
        peer.reset()

    async def connect(_: object) -> None:
        raise OSError(errno.EMFILE, "lacking")

    async with raw_engine(behave) as engine:
        await transport.send(engine.call())
        monkeypatch.setattr(transport._engines[engine.address], "connect", connect)
        assert await cause(transport, engine.call()) is Cause.LOCAL


async def test_a_connection_that_is_closed_at_once_is_noticed(transport: HttpTransport) -> None:
    async def behave(peer: Peer) -> None:
        peer.reset()

    async with raw_engine(behave) as engine:
        # which of them it is depends on who comes first
        causes = {await cause(transport, engine.call()) for _ in range(50)}
        assert causes <= {Cause.REFUSED, Cause.DISCONNECTED}
        await until(lambda: not transport._connections)
        assert transport._engines == {}


async def test_a_connection_that_was_closed_before_its_first_call_was_refused(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(connection: Callable[[], EngineConnection]) -> tuple[asyncio.Transport, EngineConnection]:
        made = connection()
        made.connection_made(asyncio.Transport())
        made.connection_lost(None)
        return asyncio.Transport(), made

    async with raw_engine(answers) as engine:
        monkeypatch.setattr(transport._engine(engine.address), "connect", lost)
        assert await cause(transport, engine.call()) is Cause.REFUSED
        assert (transport._connections, transport._engines) == (set(), {})


async def test_connecting_has_a_limit(monkeypatch: pytest.MonkeyPatch, transport: HttpTransport) -> None:
    monkeypatch.setattr(pool, "CONNECT_SECONDS", 0.05)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        # a listener whose backlog is full takes nobody else; the kernel lets in one more than it was told
        waiting = [await connecting(listener.getsockname()) for _ in range(2)]
        assert await cause(transport, Call(address=address, path="/")) is Cause.REFUSED
        for sock in waiting:
            sock.close()


async def connecting(address: tuple[str, int]) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    sock.connect_ex(address)
    return sock


async def test_a_call_that_is_cancelled_while_it_connects_leaves_nothing(transport: HttpTransport) -> None:
    async with raw_engine(answers) as engine:
        task = asyncio.create_task(transport.send(engine.call()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (transport._engines, transport._connections) == ({}, set())
        assert await (await transport.send(engine.call())).read() == b"ok"


async def test_a_connection_that_is_there_when_its_call_is_cancelled_is_closed(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with raw_engine(Peer.closed) as engine:
        connect = transport._engine(engine.address).connect

        async def leave(factory: Callable[[], EngineConnection]) -> tuple[object, EngineConnection]:
            made = await connect(factory)
            asyncio.get_running_loop().call_soon(calling.cancel)
            return made

        monkeypatch.setattr(transport._engine(engine.address), "connect", leave)
        calling = asyncio.create_task(transport.send(engine.call()))
        with pytest.raises(asyncio.CancelledError):
            await calling
        await until(lambda: engine.finished == 1)
        assert (transport._engines, transport._connections) == ({}, set())
