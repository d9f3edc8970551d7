"""Calls over real sockets, on both event loops: how they are written, and which connections are kept."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from epd.proxy import pool
from epd.proxy.pool import HttpTransport
from epd.proxy.transport import Call, TransportError
from unit.proxy.calling import only
from unit.proxy.rawengine import CHUNKED, OK, Peer, answers, once, raw_engine, until

pytestmark = pytest.mark.usefixtures("patience")


async def test_a_call_arrives_as_it_was_written(transport: HttpTransport) -> None:
    seen = []

    async def behave(peer: Peer) -> None:
        seen.append(await peer.request())
        await peer.send(OK)

    async with raw_engine(behave) as engine:
        call = engine.call("/v1/x?y=1", headers={"x-a": "1", "authorization": "Bearer é"}, body=(b"ab", b"cd"))
        answer = await transport.send(call)
        assert (answer.status, answer.headers, await answer.read()) == (200, {"content-length": "2"}, b"ok")
        [request] = seen
        host = engine.address.removeprefix("http://").encode()
        lines = [b"host: " + host, b"accept: */*", b"x-a: 1", b"authorization: Bearer \xe9", b"content-length: 4"]
        assert request.head == b"\r\n".join([b"POST /v1/x?y=1 HTTP/1.1", *lines, b"", b""])
        assert request.body == b"abcd"


@pytest.mark.parametrize(("method", "length"), [("GET", False), ("HEAD", False), ("POST", True)])
async def test_only_what_may_have_a_body_says_that_it_has_none(
    transport: HttpTransport, method: str, length: bool
) -> None:
    heads = []

    async def behave(peer: Peer) -> None:
        heads.append(await peer.head())
        await peer.send(OK[:-2] if method == "HEAD" else OK)
        await peer.closed()

    async with raw_engine(behave) as engine:
        answer = await transport.send(engine.call(method=method))
        assert await answer.read() == (b"" if method == "HEAD" else b"ok")
        assert (b"content-length: 0\r\n" in heads[0]) is length


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/x", {"a": "b\r\nc: d"}),
        ("/x", {"a": "b\nc"}),
        ("/x", {"a": "b\rc"}),
        ("/x", {"a": "b\0"}),
        ("/x", {"a\r\nb": "c"}),
        ("/x", {"a": "\u20ac"}),
        ("/x HTTP/1.1\r\na: b", {}),
        ("/x y", {}),
    ],
)
async def test_what_would_be_another_request_is_not_written(
    transport: HttpTransport, path: str, headers: dict[str, str]
) -> None:
    async with raw_engine(answers) as engine:
        with pytest.raises(ValueError, match=r"HTTP|latin-1"):
            await transport.send(engine.call(path, headers=headers))
        assert engine.peers == []


async def test_connections_are_kept(transport: HttpTransport) -> None:
    async with raw_engine(answers) as engine:
        call = engine.call(body=b"x" * 100)
        for _ in range(2000):
            assert await (await transport.send(call)).read() == b"ok"
        assert (len(engine.peers), transport.opened) == (1, 1)


async def test_calls_at_the_same_time_share_no_connection_and_leave_them_to_others(transport: HttpTransport) -> None:
    async with raw_engine(answers) as engine:

        async def client() -> None:
            for _ in range(250):
                assert await (await transport.send(engine.call(body=b"x"))).read() == b"ok"

        await asyncio.gather(*(client() for _ in range(8)))
        assert len(engine.peers) == transport.opened <= 8


async def test_the_connection_that_was_used_last_is_used_first(transport: HttpTransport) -> None:
    async with raw_engine(answers) as engine:
        both = await asyncio.gather(*(transport.send(engine.call()) for _ in range(2)))
        first, second = transport._engines[engine.address].kept
        assert first.idle_since <= second.idle_since
        assert [await answer.read() for answer in both] == [b"ok", b"ok"]
        await transport.send(engine.call())
        assert list(transport._engines[engine.address].kept) == [first, second]
        assert first.idle_since < second.idle_since


async def test_a_connection_that_the_engine_closes_is_dropped(transport: HttpTransport) -> None:
    async with raw_engine(once(OK)) as engine:
        for number in range(3):
            assert await (await transport.send(engine.call())).read() == b"ok"
            await until(lambda: not transport._connections)
            assert transport._engines == {}
            assert (transport.opened, engine.finished) == (number + 1, number + 1)


async def test_a_connection_grows_old(transport: HttpTransport) -> None:
    async with raw_engine(answers) as engine:
        await transport.send(engine.call())
        old = only(transport)
        old.idle_since -= pool.KEEPALIVE_SECONDS
        await transport.send(engine.call())
        assert (old.closed, transport.opened) == (True, 2)


@pytest.mark.interpreted
async def test_old_connections_are_closed_without_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "KEEPALIVE_SECONDS", 0.02)
    monkeypatch.setattr(pool, "SWEEP_SECONDS", 0.005)
    async with HttpTransport() as transport, raw_engine(answers) as engine:
        await asyncio.gather(*(transport.send(engine.call()) for _ in range(3)))
        await until(lambda: engine.finished == 3)
        await until(lambda: not transport._connections)
        assert transport._engines == {}
        assert transport._sweep is None


async def test_addresses_of_all_families(transport: HttpTransport, tmp_path: Path) -> None:
    for options in ({"host": "127.0.0.1"}, {"host": "::1"}, {"unix": str(tmp_path / "s")}):
        async with raw_engine(answers, **options) as engine:
            for _ in range(2):
                assert await (await transport.send(engine.call())).read() == b"ok"
            assert len(engine.peers) == 1


async def test_credentials_of_an_address_go_nowhere(transport: HttpTransport) -> None:
    heads = []

    async def behave(peer: Peer) -> None:
        heads.append(await peer.head())
        await peer.send(OK)

    async with raw_engine(behave) as engine:
        host = engine.address.removeprefix("http://")
        await transport.send(Call(address=f"http://user:secret@{host}", path="/", method="GET"))
        assert heads == [b"GET / HTTP/1.1\r\nhost: " + host.encode() + b"\r\naccept: */*\r\n\r\n"]


async def test_connections_do_not_wait_and_notice_a_node_that_is_gone(transport: HttpTransport) -> None:
    async with raw_engine(answers) as engine:
        await transport.send(engine.call())
        sock = only(transport)._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert [sock.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [15, 5, 3]


async def test_closing_the_pool_breaks_all(transport: HttpTransport) -> None:
    async def behave(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED)
        await peer.closed()

    async with raw_engine(answers) as idle, raw_engine(behave) as busy:
        await (await transport.send(idle.call())).read()
        reading = asyncio.create_task((await transport.send(busy.call())).read())
        await asyncio.sleep(0)
        transport.close()
        with pytest.raises(TransportError):
            await reading
        await until(lambda: (idle.finished, busy.finished) == (1, 1))
        await until(lambda: not transport._connections)


async def test_addresses_that_came_and_went_leave_nothing(transport: HttpTransport) -> None:
    async with raw_engine(answers) as engine:
        for number in range(100):
            call = Call(address=engine.address.replace("//", f"//{number}@"), path="/")
            await transport.send(call)
        assert len(transport._engines) == 100
        transport.close()
        await until(lambda: not transport._engines)
