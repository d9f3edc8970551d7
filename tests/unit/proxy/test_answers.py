"""An answer between its connection and whoever takes it."""

from __future__ import annotations

import asyncio

import pytest

from epd.proxy.answers import WAITING_BYTES
from epd.proxy.transport import Cause, TransportError
from unit.proxy.rawengine import CHUNKED, OK, Recorder
from unit.proxy.wires import Line


async def test_closing_a_complete_answer_leaves_the_connection_to_the_next() -> None:
    line = Line()
    first = line.ask()
    line.hear(OK)
    second = line.ask()
    first.close()
    first.pause()
    line.hear(OK)
    assert (await second.read(), line.wire.aborted, line.wire.paused) == (b"ok", False, False)


async def test_closing_an_answer_breaks_the_connection_and_silences_it() -> None:
    line = Line()
    answer = line.ask()
    sink = Recorder()
    answer.relay(sink)
    line.hear(CHUNKED + b"2\r\nok\r\n")
    answer.close()
    answer.close()
    assert (line.wire.aborted, line.freed) == (True, 0)
    line.connection.connection_lost(None)
    assert (bytes(sink.body), sink.over.done(), line.lost) == (b"ok", False, 1)


async def test_a_closed_answer_is_none_to_who_reads_it() -> None:
    line = Line()
    answer = line.ask()
    line.hear(OK[:-1])
    reading = asyncio.create_task(answer.read())
    await asyncio.sleep(0)
    answer.close()
    with pytest.raises(TransportError):
        await reading
    with pytest.raises(TransportError):
        await answer.read()


async def test_a_complete_answer_can_be_read_when_it_is_closed() -> None:
    line = Line()
    answer = line.ask()
    line.hear(OK)
    answer.close()
    assert await answer.read() == b"ok"


async def test_a_sink_may_close_in_the_middle() -> None:
    line = Line()
    answer = line.ask()

    class Closing(Recorder):
        def write(self, data: bytes) -> None:
            super().write(data)
            answer.close()

    sink = Closing()
    answer.relay(sink)
    line.hear(CHUNKED + b"2\r\nok\r\n0\r\n\r\n")
    assert (bytes(sink.body), sink.over.done(), line.wire.aborted, line.freed) == (b"ok", False, True, 0)


async def test_a_relay_hands_over_what_waits_and_the_end() -> None:
    line = Line()
    answer = line.ask()
    line.hear(CHUNKED + b"2\r\nok\r\n")
    first, second, third = Recorder(), Recorder(), Recorder()
    answer.relay(first)
    answer.relay(second)
    line.hear(b"1\r\n!\r\n0\r\n\r\n")
    answer.relay(third)
    assert [bytes(sink.body) for sink in (first, second, third)] == [b"ok", b"!", b""]
    assert [sink.over.done() for sink in (first, second, third)] == [False, True, True]


async def test_a_relay_after_a_break_says_so() -> None:
    line = Line()
    answer = line.ask()
    line.hear(OK[:-1], eof=True)
    sink = Recorder()
    answer.relay(sink)
    broke = sink.over.result()
    assert broke is not None
    assert (bytes(sink.body), broke.cause) == (b"o", Cause.DISCONNECTED)
    with pytest.raises(TransportError):
        await answer.read()


@pytest.mark.parametrize("how", ["read", "relay"])
async def test_what_nobody_takes_is_bounded(how: str) -> None:
    line = Line()
    answer = line.ask()
    size = 3 * WAITING_BYTES
    line.hear(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
    sent = 0
    while not line.wire.paused:
        line.hear(b"x" * 1000)
        sent += 1000
    assert sent <= WAITING_BYTES + 1000
    sink = Recorder()
    task = asyncio.create_task(answer.read())
    if how == "read":
        await asyncio.sleep(0)
    else:
        task.cancel()
        answer.relay(sink)
    assert not line.wire.paused
    line.hear(b"x" * (size - sent))
    assert (await task if how == "read" else bytes(sink.body)) == b"x" * size


async def test_a_sink_that_pauses_at_once_is_not_resumed_with_what_was_held_back() -> None:
    line = Line()
    answer = line.ask()
    line.hear(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (2 * WAITING_BYTES), b"x" * (WAITING_BYTES + 1))
    assert line.wire.paused
    answer.relay(Recorder(answer, pause_at=1))
    assert line.wire.paused
    answer.resume()
    assert not line.wire.paused


async def test_a_pause_ends_with_the_answer() -> None:
    line = Line()
    answer = line.ask()
    answer.relay(Recorder(answer, pause_at=1))
    line.hear(CHUNKED + b"2\r\nok\r\n")
    assert line.wire.paused
    # what was on its way
    line.hear(b"0\r\n\r\n")
    assert (line.freed, line.wire.paused) == (1, False)
