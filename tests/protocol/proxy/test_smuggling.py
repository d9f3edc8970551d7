"""Malformed requests through a real socket, whole and byte by byte, on both loops: refused, and never passed on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop

from epd.proxy.listening import Listener
from unit.proxy.malformed import BODY, MALFORMED, VALID
from unit.proxy.recorder import Recorder, statuses

BYTE_BY_BYTE = 2000
"""Bytes up to which a request is sent one by one; of larger ones only the last ones are."""
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@asynccontextmanager
async def listening(recorder: Recorder) -> AsyncIterator[tuple[str, int]]:
    listener = Listener(recorder)
    await listener.listen("127.0.0.1", 0)
    host, _, port = listener.addresses[0].rpartition(":")
    try:
        yield host, int(port)
    finally:
        await listener.close(0.1)


async def exchange(address: tuple[str, int], data: bytes, *, piecewise: bool) -> bytes:
    """Send `data` and return all that comes back before the server closes."""
    reader, writer = await asyncio.open_connection(*address)
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    received = asyncio.create_task(reader.read())
    whole = 0 if not piecewise else max(0, len(data) - BYTE_BY_BYTE)
    pieces = [data[:whole], *(data[at : at + 1] for at in range(whole, len(data)))] if piecewise else [data]
    for piece in pieces:
        if received.done():
            break
        writer.write(piece)
        # lets the server read it before the next
        await asyncio.sleep(0)
    try:
        return await asyncio.wait_for(received, 10)
    finally:
        writer.close()


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("piecewise", [False, True], ids=["whole", "byte by byte"])
def test_what_is_malformed_is_refused_and_the_connection_closed(loop: str, piecewise: bool) -> None:
    async def run() -> None:
        recorder = Recorder()
        async with listening(recorder) as address:
            for name, (data, status) in MALFORMED.items():
                received = await exchange(address, data, piecewise=piecewise)
                assert statuses(received) == [status], name
                assert b"connection: close" in received, name
                assert recorder.answered == [], name

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(run())


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("piecewise", [False, True], ids=["whole", "byte by byte"])
def test_what_is_odd_and_valid_is_answered(loop: str, piecewise: bool) -> None:
    last = b"GET / HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n"

    async def run() -> None:
        recorder = Recorder()
        async with listening(recorder) as address:
            for name, data in VALID.items():
                recorder.turns.clear()
                received = await exchange(address, data + last, piecewise=piecewise)
                old = b"HTTP/1.0" in data
                assert statuses(received) == ([200] if old else [200, 200]), name
                assert recorder.turns[0].body == BODY, name
                assert len(recorder.answered) == (1 if old else 2), name

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(run())
