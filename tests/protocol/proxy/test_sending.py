"""Streams that break off, through real sockets on both loops: no client may take one for complete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from epd.proxy.listening import Listener
from epd.proxy.transport import Cause, Reply, Sink, TransportError
from unit.proxy.recorder import RecordedTurn, Recorder

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
