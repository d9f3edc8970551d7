"""Calls over real sockets, on both event loops: what is kept, what is sent again, and how each fault is named."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import random
import resource
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from epd.proxy import pool
from epd.proxy.answers import EngineAnswer
from epd.proxy.pool import HttpTransport
from epd.proxy.transport import Call, Cause, TransportError
from epd.proxy.upstream import BATCH_BYTES, EngineConnection
from unit.proxy.rawengine import CHUNKED, OK, Peer, Recorder, answers, once, raw_engine, until


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection grows old or is found stale too late because the machine is slow."""
    monkeypatch.setattr(pool, "KEEPALIVE_SECONDS", 600)
    monkeypatch.setattr(pool, "STALE_SECONDS", 600)


@pytest.fixture
async def transport() -> AsyncIterator[HttpTransport]:
    async with HttpTransport() as transport:
        yield transport


def only(transport: HttpTransport) -> EngineConnection:
    [connection] = transport._connections
    return connection


async def cause(transport: HttpTransport, call: Call, *, relayed: bool = False) -> Cause:
    with pytest.raises(TransportError) as error:
        await asyncio.wait_for(_finish(transport, call, relayed=relayed), 10)
    return error.value.cause


async def _finish(transport: HttpTransport, call: Call, *, relayed: bool) -> None:
    answer = await transport.send(call)
    if not relayed:
        await answer.read()
        return
    sink = Recorder()
    answer.relay(sink)
    broke = await sink.over
    assert broke is not None
    raise broke


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


async def test_old_connections_are_closed_without_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "KEEPALIVE_SECONDS", 0.02)
    monkeypatch.setattr(pool, "SWEEP_SECONDS", 0.005)
    async with HttpTransport() as transport, raw_engine(answers) as engine:
        await asyncio.gather(*(transport.send(engine.call()) for _ in range(3)))
        await until(lambda: engine.finished == 3)
        await until(lambda: not transport._connections)
        assert transport._engines == {}
        assert transport._sweep is None


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


async def test_a_call_that_is_cancelled_while_it_connects_leaves_nothing(transport: HttpTransport) -> None:
    async with raw_engine(answers) as engine:
        task = asyncio.create_task(transport.send(engine.call()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (transport._engines, transport._connections) == ({}, set())
        assert await (await transport.send(engine.call())).read() == b"ok"


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
        await until(lambda: bool(transport._connections) and only(transport)._full)
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


def manners(path: bytes, dice: random.Random) -> tuple[list[bytes], bool]:
    """How an engine answers with the path, in one of several ways, some of them wrong; and whether it goes on."""
    ok = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(path), path)
    chunks = [CHUNKED, *(b"1\r\n%c\r\n" % sign for sign in path)]
    return dice.choice(
        [
            ([ok[: dice.randrange(1, len(ok))]], False),
            ([b"HTTP/1.1 200 OK\r\n\r\n", path], False),
            ([ok + ok], False),
            ([b"\0" + ok], True),
            ([*chunks, b"0\r\n\r\n"], True),
            (chunks, False),
            # what is then kept is closed before long
            ([ok], False),
            *[([ok], True)] * 3,
        ]
    )


async def misbehave(peer: Peer, dice: random.Random) -> None:
    while True:
        head = await peer.head()
        path = head.split(b" ")[1]
        kind = dice.randrange(12)
        if kind == 0:
            peer.reset()
            return
        if kind == 1:
            # before the body was read
            await peer.send(b"HTTP/1.1 413 No\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(path), path))
            return
        size = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        await peer.reader.readexactly(size)
        pieces, goes_on = manners(path, dice)
        await peer.send(*pieces)
        if not goes_on:
            return


async def sluggishly(answer: EngineAnswer) -> bytes:
    """Relay, with a pause after each write."""

    class Sluggish(Recorder):
        def write(self, data: bytes) -> None:
            super().write(data)
            answer.pause()
            asyncio.get_running_loop().call_soon(answer.resume)

    sink = Sluggish()
    answer.relay(sink)
    if broke := await sink.over:
        raise broke
    return bytes(sink.body)


@pytest.mark.parametrize("seed", range(3))
async def test_in_a_storm_of_faults_no_call_hangs_and_none_gets_the_answer_of_another(seed: int) -> None:
    dice = random.Random(seed)
    counts = Counter[str]()

    async def ask(path: str) -> None:
        body = bytes(dice.choice([0, 10, 1000, 300_000]))
        try:
            answer = await transport.send(engine.call(path, body=body))
            try:
                text = await answer.read() if dice.random() < 0.5 else await sluggishly(answer)
            finally:
                answer.close()
            assert text.decode() == path
            counts["answered"] += 1
        except TransportError as error:
            counts[error.cause] += 1

    async def client(name: int) -> None:
        for number in range(60):
            task = asyncio.create_task(ask(f"/{seed}/{name}/{number}"))
            if dice.random() < 0.1:
                for _ in range(dice.randrange(8)):
                    await asyncio.sleep(0)
                task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()

    async with HttpTransport() as transport, raw_engine(lambda peer: misbehave(peer, dice)) as engine:
        await asyncio.wait_for(asyncio.gather(*(client(name) for name in range(8))), 60)
        assert set(counts) == {"answered", Cause.DISCONNECTED, Cause.PROTOCOL}
        # half of what the engine does is right, and of the cancelled ones some had ended
        assert counts["answered"] > 150
        # the others are all kept, or being closed
        await until(
            lambda: len(transport._connections) == sum(len(known.kept) for known in transport._engines.values())
        )
        transport.close()
        await until(lambda: (transport._connections, transport._engines) == (set(), {}))
