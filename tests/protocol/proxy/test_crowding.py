"""A thousand clients on real sockets, on both loops: who makes room, and what the others are told."""

from __future__ import annotations

import asyncio
import resource
import ssl
from collections.abc import Callable, Iterator

import pytest
import uvloop

from epd.proxy import crowding
from epd.proxy.listening import Listener
from epd.proxy.tls import Certificate
from epd.proxy.transport import Reply
from unit.proxy.certificates import certificates
from unit.proxy.recorder import RecordedTurn, Recorder, ok, statuses

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
CLIENTS = 1000
GET = b"GET / HTTP/1.1\r\nHost: p\r\n\r\n"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(autouse=True)
def descriptors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both ends of each connection are in this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if crowding.raise_descriptors() < 2 * CLIENTS + 200:
        pytest.skip("this process may not have enough descriptors")
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def connect(listener: Listener, trust: ssl.SSLContext | None = None) -> Streams:
    host, _, port = listener.addresses[0].rpartition(":")
    return await asyncio.open_connection(host, int(port), ssl=trust)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - there is no Event
            await asyncio.sleep(0.001)


async def crowd(listener: Listener) -> list[Streams]:
    clients = []
    for number in range(CLIENTS):
        clients.append(await connect(listener))
        # one after the other, so that it is known who came first
        await until(lambda: listener.connections > number)  # noqa: B023 - asked within this round alone
    return clients


async def ask(streams: Streams) -> list[int]:
    streams[1].write(GET)
    return statuses(await asyncio.wait_for(streams[0].readuntil(b"ok"), 10))


async def idle_ones_make_room() -> None:
    listener = Listener(Recorder(), limit=CLIENTS)
    await listener.listen("127.0.0.1", 0)
    clients = await crowd(listener)
    assert await ask(clients[0]) == [200]
    newcomer = await connect(listener)
    assert await ask(newcomer) == [200]
    # the first is idle for less long than those behind it, which have never asked
    ended = [await asyncio.wait_for(reader.read(), 10) for reader, _ in clients[1 : 1 + crowding.CLOSED_AT_ONCE]]
    assert ended == [b""] * crowding.CLOSED_AT_ONCE
    await until(lambda: listener.connections == CLIENTS + 1 - crowding.CLOSED_AT_ONCE)
    kept = [clients[0], *clients[1 + crowding.CLOSED_AT_ONCE :], newcomer]
    assert [await ask(each) for each in kept] == [[200]] * len(kept)
    for _, writer in (*clients, newcomer):
        writer.close()
    await until(lambda: listener.connections == 0)
    await listener.close(5)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_thousand_idle_clients_make_room_for_more(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowding, "SPARED_SECONDS", 0)
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(idle_ones_make_room())


async def parts_of_heads_make_room() -> None:
    recorder = Recorder()
    listener = Listener(recorder, limit=8)
    await listener.listen("127.0.0.1", 0)
    slow = [await connect(listener) for _ in range(8)]
    for _, writer in slow:
        writer.write(GET[:-2])
    await until(lambda: all(connection._inflow.rest for connection in listener._connections.all()))
    reading = [asyncio.create_task(reader.read()) for reader, _ in slow]
    newcomer = await connect(listener)
    assert await ask(newcomer) == [200]
    ended, others = await asyncio.wait(reading, timeout=10, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in ended] == [b""]
    for task in others:
        task.cancel()
    assert recorder.refusals == []
    for _, writer in (*slow, newcomer):
        writer.close()
    await listener.close(5)


@pytest.mark.parametrize("loop", LOOPS)
def test_who_sends_but_a_part_of_a_head_makes_room(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowding, "SPARED_SECONDS", 0)
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(parts_of_heads_make_room())


async def busy_ones_stay(*, tls: bool) -> None:
    release = asyncio.Event()

    async def answers(turn: RecordedTurn) -> Reply:
        await release.wait()
        return ok()

    made = certificates()
    context = Certificate(chain=made.path("engine.pem"), key=made.path("engine.key")).context if tls else None
    trust = ssl.create_default_context(cafile=made.path("ca.pem")) if tls else None
    recorder = Recorder(answers=answers)
    listener = Listener(recorder, context=context, limit=8)
    await listener.listen("127.0.0.1", 0)
    clients = [await connect(listener, trust) for _ in range(8)]
    for _, writer in clients:
        writer.write(GET)
    await until(lambda: len(recorder.answered) == 8)
    for sent in (b"", GET):
        reader, writer = await connect(listener, trust)
        writer.write(sent)
        # it gets to read the refusal, whatever it has sent
        received = await asyncio.wait_for(reader.readuntil(b"}}"), 10)
        assert statuses(received) == [503]
        assert all(
            word in received for word in (b'"code": "too_many_connections"', b"retry-after: 1", b"connection: close")
        )
        writer.close()
        await until(lambda: listener.connections == 8)
    assert len(recorder.turns) == 8
    release.set()
    assert [statuses(await asyncio.wait_for(reader.readuntil(b"ok"), 10)) for reader, _ in clients] == [[200]] * 8
    # whose place is free again is anybody's
    clients.pop()[1].close()
    await until(lambda: listener.connections == 7)
    clients.append(await connect(listener, trust))
    assert await ask(clients[-1]) == [200]
    for _, writer in clients:
        writer.close()
    await listener.close(5)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("loop", LOOPS)
def test_busy_clients_stay_and_newcomers_are_told(loop: str, tls: bool) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(busy_ones_stay(tls=tls))
