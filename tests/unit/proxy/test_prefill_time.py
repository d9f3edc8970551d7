"""Streams that fall silent, take too long, or stand still with the process or their client."""

from __future__ import annotations

import asyncio

import pytest

from epd.proxy import prefill
from epd.proxy.prefill import EngineStream
from epd.proxy.transport import Cause, TransportError
from unit.proxy.engines import CONTENT, ROLE_CHUNK, bench, broken, streamed
from unit.proxy.prefills import D0, attempt, open_stream, relayed
from unit.proxy.rawengine import Recorder


@pytest.mark.parametrize("fault", [broken(Cause.DISCONNECTED), None])
async def test_a_stream_that_breaks_or_falls_silent_says_so(fault: TransportError | None) -> None:
    b = bench(D0, scripts={"d0": [streamed(ROLE_CHUNK + CONTENT, fault)]})
    body, cause = await relayed(await attempt(b, idle=0.01))
    assert (body, cause) == (ROLE_CHUNK + CONTENT, fault.cause if fault else Cause.TIMEOUT)
    # a silent engine is not left to work on
    assert b.engines.answers[0].closed == (0 if fault else 1)


async def test_a_stream_ends_with_the_time_of_its_request() -> None:
    b = bench(D0, scripts={"d0": [streamed(ROLE_CHUNK + CONTENT, None)]})
    assert await relayed(await attempt(b, seconds=0.05)) == (ROLE_CHUNK + CONTENT, Cause.TIMEOUT)


class Clock:
    """Stands in for `time` in `prefill.py`. The timer of a stream is not waited for, but called."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def passes(self, seconds: float, stream: EngineStream) -> None:
        self.now += seconds
        stream._check()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(prefill, "time", clock)
    return clock


@pytest.mark.interpreted
async def test_each_event_puts_off_the_silence(clock: Clock) -> None:
    stream, sink = open_stream(streamed(None), idle=10), Recorder()
    stream.relay(sink)
    for _ in range(3):
        clock.passes(9, stream)
        stream.write(CONTENT)
    assert not sink.over.done()
    clock.passes(10, stream)
    broke = sink.over.result()
    assert broke is not None
    assert broke.cause is Cause.TIMEOUT


@pytest.mark.interpreted
async def test_an_engine_that_is_paused_is_not_silent(clock: Clock) -> None:
    answer = streamed(None)
    stream, sink = open_stream(answer, idle=10), Recorder()
    stream.relay(sink)
    stream.pause()
    clock.passes(30, stream)
    assert (sink.over.done(), answer.paused) == (False, True)
    clock.now += 9
    stream.resume()
    assert not answer.paused
    clock.passes(9, stream)
    assert not sink.over.done()
    clock.passes(1, stream)
    broke = sink.over.result()
    assert broke is not None
    assert broke.cause is Cause.TIMEOUT


@pytest.mark.interpreted
async def test_while_the_process_stands_still_no_engine_is_silent(clock: Clock) -> None:
    stream, sink = open_stream(streamed(None), idle=10), Recorder()
    stream.relay(sink)
    clock.passes(25, stream)
    assert not sink.over.done()
    clock.passes(9, stream)
    assert not sink.over.done()
    clock.passes(1, stream)
    broke = sink.over.result()
    assert broke is not None
    assert broke.cause is Cause.TIMEOUT


async def test_a_paused_stream_still_has_a_deadline() -> None:
    stream, sink = open_stream(streamed(None), seconds=0.02), Recorder()
    stream.relay(sink)
    stream.pause()
    broke = await asyncio.wait_for(sink.over, 10)
    assert broke is not None
    assert broke.cause is Cause.TIMEOUT


async def test_a_closed_stream_is_silent() -> None:
    answer, closed = streamed(None), list[int]()
    stream, sink = open_stream(answer, idle=0.01, closed=closed), Recorder()
    stream.relay(sink)
    stream.close()
    stream.close()
    assert stream._timer is None
    stream.end()
    assert (sink.over.done(), answer.closed, closed) == (False, 1, [1])
