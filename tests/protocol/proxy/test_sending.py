"""What clients see of replies, and the proxy of clients that leave, through real sockets on both loops."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

import pytest
import uvloop

from epd.proxy.errors import NotFoundError
from epd.proxy.framing import CONTINUE
from epd.proxy.listening import Listener
from epd.proxy.transport import Cause, Reply, Sink, TransportError
from unit.proxy.recorder import RecordedTurn, Recorder, ok, statuses

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


class Breaking:
    """Sends an event and breaks off later, as an engine that dies."""

    def relay(self, sink: Sink) -> None:
        sink.write(b"data: a\n\n")
        error = TransportError(Cause.DISCONNECTED, "gone")
        asyncio.get_running_loop().call_later(0.01, sink.fail, error)

    async def read_chunk(self) -> bytes:
        raise AssertionError

    def pause(self) -> None:
        raise AssertionError

    resume = pause

    def close(self) -> None:
        pass


async def breaks(turn: RecordedTurn) -> Reply:
    return Reply(status=200, headers={}, stream=Breaking())


async def received(version: bytes) -> bytes:
    listener = Listener(Recorder(answers=breaks))
    await listener.listen("127.0.0.1", 0)
    host, _, port = listener.addresses[0].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(b"GET / HTTP/" + version + b"\r\nHost: p\r\n\r\n")
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()
        await listener.close(1)


@pytest.mark.parametrize("loop", LOOPS)
def test_chunks_end_without_the_last_one(loop: str) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        assert runner.run(received(b"1.1")).endswith(b"\r\n\r\n9\r\ndata: a\n\n\r\n")


@pytest.mark.parametrize("loop", LOOPS)
def test_what_ends_with_the_connection_is_reset(loop: str) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner, pytest.raises(ConnectionResetError):
        runner.run(received(b"1.0"))


# clients that send no more, and clients that have left, begin alike


async def half_close(*, leaves: bool) -> tuple[bytes, RecordedTurn]:
    release = asyncio.Event()

    async def waits(turn: RecordedTurn) -> Reply:
        await release.wait()
        return ok()

    recorder = Recorder(answers=waits)
    listener = Listener(recorder)
    await listener.listen("127.0.0.1", 0)
    host, _, port = listener.addresses[0].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET / HTTP/1.1\r\nHost: p\r\n\r\n")
    received = b""
    async with asyncio.timeout(10):
        while not recorder.answered:  # noqa: ASYNC110 - there is no Event
            await asyncio.sleep(0.001)
        if leaves:
            writer.close()
            while not recorder.turns[0].ends:  # noqa: ASYNC110 - there is no Event
                await asyncio.sleep(0.001)
        else:
            writer.write_eof()
            received = await reader.readuntil(CONTINUE)
            release.set()
            received += await reader.read()
            writer.close()
    await listener.close(1)
    return received, recorder.turns[0]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_that_sends_no_more_gets_its_answer(loop: str) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        received, turn = runner.run(half_close(leaves=False))
    assert (statuses(received), turn.cancelled, turn.ends) == ([200], False, [False])


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_that_has_left_is_found_out(loop: str) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        _, turn = runner.run(half_close(leaves=True))
    assert (turn.cancelled, turn.ends) == (True, [True])


async def reset_behind_a_refusal() -> Recorder:
    """The refusal is written to a client that is gone, which the loop learns before the next request's first step."""

    def begins(turn: RecordedTurn) -> None:
        if turn.head.path == "/nope":
            raise NotFoundError("no")

    async def never(turn: RecordedTurn) -> Reply:
        await asyncio.Event().wait()
        raise AssertionError

    recorder = Recorder(begins=begins, answers=never)
    listener = Listener(recorder)
    await listener.listen("127.0.0.1", 0)
    host, _, port = listener.addresses[0].rpartition(":")
    async with asyncio.timeout(10):
        for number in range(20):
            client = socket.create_connection((host, int(port)))
            while listener.connections == 0:  # noqa: ASYNC110 - there is no Event
                await asyncio.sleep(0.001)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(
                b"GET /nope HTTP/1.1\r\nHost: p\r\n\r\nPOST / HTTP/1.1\r\nHost: p\r\nContent-Length: 2\r\n\r\n{}"
            )
            client.close()
            while listener.connections or (len(recorder.turns) not in (0, 2 * (number + 1))):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.001)
    await listener.close(1)
    return recorder


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_that_resets_leaves_no_turn_behind(loop: str) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        recorder = runner.run(reset_behind_a_refusal())
    assert [turn.head.path for turn in recorder.turns if len(turn.ends) != 1] == []


async def run_ahead(requests: int) -> tuple[int, int]:
    """Bytes of refusals in memory when the proxy reads no more, and how many refusals come once they are read."""

    def begins(turn: RecordedTurn) -> None:
        raise NotFoundError("no" * 100)

    listener = Listener(Recorder(begins=begins))
    await listener.listen("127.0.0.1", 0)
    host, _, port = listener.addresses[0].rpartition(":")
    # a small limit, so that the client's own loop does not read for it
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    writer.write(b"GET / HTTP/1.1\r\nHost: p\r\n\r\n" * requests)
    writer.write_eof()
    async with asyncio.timeout(30):
        while not any(connection._inflow.held for connection in listener._connections.all()):  # noqa: ASYNC110 - there is no Event
            await asyncio.sleep(0.001)
        [connection] = listener._connections.all()
        waiting = connection._transport.get_write_buffer_size()
        received = await reader.read()
    writer.close()
    await listener.close(1)
    return waiting, received.count(b"HTTP/1.1 404 ")


@pytest.mark.parametrize("loop", LOOPS)
def test_refusals_wait_for_their_client(loop: str) -> None:
    requests = 20_000
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        waiting, refusals = runner.run(run_ahead(requests))
    assert 0 < waiting < 1 << 17
    assert refusals == requests


async def hang_up_on_a_stream() -> list[str]:
    calls: list[str] = []

    class Silent(Breaking):
        def relay(self, sink: Sink) -> None:
            sink.write(b"data: a\n\n")

        def close(self) -> None:
            calls.append("close")

    async def streams(turn: RecordedTurn) -> Reply:
        return Reply(status=200, headers={"content-type": "text/event-stream"}, stream=Silent())

    listener = Listener(Recorder(answers=streams))
    await listener.listen("127.0.0.1", 0)
    host, _, port = listener.addresses[0].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET / HTTP/1.1\r\nHost: p\r\n\r\n")
    await reader.readuntil(b"data: a\n\n\r\n")
    writer.close()
    async with asyncio.timeout(10):
        while not calls:  # noqa: ASYNC110 - there is no Event
            await asyncio.sleep(0.001)
    await listener.close(1)
    return calls


@pytest.mark.parametrize("loop", LOOPS)
def test_a_silent_stream_ends_when_its_client_has_left(loop: str) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        assert runner.run(hang_up_on_a_stream()) == ["close"]
