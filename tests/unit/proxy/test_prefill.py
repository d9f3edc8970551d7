from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epd.proxy import prefill
from epd.proxy.pool import HttpTransport
from epd.proxy.prefill import Attempt, EngineStream, PrefillSide
from epd.proxy.routing import InFlight
from epd.proxy.stream import EVENT_LIMIT_BYTES, HEAD_LIMIT_BYTES, StreamHead
from epd.proxy.transport import Answer, Call, Cause, TransportError
from unit.proxy.engines import (
    CONTENT,
    JSON,
    ROLE_CHUNK,
    Bench,
    Engines,
    Scripted,
    arrival,
    bench,
    broken,
    document,
    member,
    streamed,
)
from unit.proxy.rawengine import CHUNKED, Peer, Recorder, raw_engine
from unit.proxy.wires import Line

D0 = member("d0")
LAST = b'data: {"choices":[],"kv_transfer_params":{}}\n\n'
STRIPPED = b'data: {"choices":[]}\n\n'
DONE = b"data: [DONE]\n\n"


async def attempt(b: Bench, idle: float = 60, seconds: float = 60) -> Attempt:
    side = PrefillSide(transport=b.engines, load=b.load, idle_seconds=idle)
    return await side.attempt(arrival(seconds=seconds), D0)


def stream_of(attempt: Attempt) -> EngineStream:
    assert attempt.reply is not None
    assert isinstance(attempt.reply.stream, EngineStream)
    return attempt.reply.stream


async def relayed(attempt: Attempt) -> tuple[bytes, Cause | None]:
    """All that a client would get, and why it broke off."""
    sink = Recorder()
    stream_of(attempt).relay(sink)
    broke = await asyncio.wait_for(sink.over, 10)
    return bytes(sink.body), broke.cause if broke else None


def open_stream(
    answer: Answer, *, head: bytes = b"", idle: float = 60, seconds: float = 60, closed: list[int] | None = None
) -> EngineStream:
    return EngineStream(
        answer=answer,
        head=StreamHead(held=bytearray(head)),
        deadline=prefill.time.monotonic() + seconds,
        idle_seconds=idle,
        on_over=lambda: closed.append(1) if closed is not None else None,
    )


async def test_a_stream_starts_with_all_that_was_held_back_and_loses_transfer_fields() -> None:
    b = bench(D0, scripts={"d0": [streamed(ROLE_CHUNK[:9], ROLE_CHUNK[9:], CONTENT, CONTENT + LAST, DONE)]})
    outcome = await attempt(b)
    assert outcome.cause is None
    assert await relayed(outcome) == (ROLE_CHUNK + CONTENT + CONTENT + STRIPPED + DONE, None)


async def test_what_comes_before_the_relay_is_not_lost() -> None:
    b = bench(D0, scripts={"d0": [streamed(ROLE_CHUNK, CONTENT, None)]})
    outcome = await attempt(b)
    [answer] = b.engines.answers
    answer.chunks = [CONTENT, LAST, None]
    answer.resume()
    answer.chunks = [DONE]
    assert await relayed(outcome) == (ROLE_CHUNK + CONTENT + CONTENT + STRIPPED + DONE, None)


async def test_events_pass_as_they_come_and_whole() -> None:
    answer = streamed()
    stream, sink = open_stream(answer, head=ROLE_CHUNK + CONTENT), Recorder()
    answer.chunks = [None]
    stream.relay(sink)
    seen = [bytes(sink.body)]
    for chunk in (CONTENT, CONTENT[:5], CONTENT[5:] + LAST, DONE[:-1]):
        stream.write(chunk)
        seen.append(bytes(sink.body)[sum(map(len, seen)) :])
    stream.end()
    seen.append(bytes(sink.body)[sum(map(len, seen)) :])
    assert seen == [ROLE_CHUNK + CONTENT, CONTENT, b"", CONTENT + STRIPPED, b"", DONE[:-1]]
    assert sink.over.result() is None


@pytest.mark.parametrize("end", [[DONE], [broken(Cause.DISCONNECTED)]])
async def test_an_engine_that_has_ended_a_stream_is_free_whatever_its_client_has_read(end: list[Any]) -> None:
    b = bench(D0, scripts={"d0": [streamed(ROLE_CHUNK + CONTENT, None)]})
    stream, sink = stream_of(await attempt(b)), Recorder()
    stream.relay(sink)
    assert b.load.counts() == {"d0": 1}
    [answer] = b.engines.answers
    answer.chunks = end
    answer.resume()
    assert (sink.over.done(), b.load.counts()) == (True, {})
    # another one's place is not given up for it
    b.load.begin("d0")
    stream.close()
    assert b.load.counts() == {"d0": 1}


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_an_engine_is_asked_by_the_method_that_the_client_used(method: str) -> None:
    calls: list[Call] = []

    class Listening(Engines):
        async def send(self, call: Call) -> Scripted:
            calls.append(call)
            return await super().send(call)

    side = PrefillSide(transport=Listening(), load=InFlight(), idle_seconds=60)
    request = arrival(headers={"traceparent": "t"})
    await side.attempt(
        request if method == "POST" else replace(request, method=method, path="/v1/responses/resp_1"), D0
    )
    [call] = calls
    path = request.path if method == "POST" else "/v1/responses/resp_1"
    headers = {"traceparent": "t", "content-type": "application/json", "x-request-id": "r"}
    assert (call.method, call.path, call.address, call.headers) == (method, path, D0.address, headers)


async def test_a_stream_holds_its_place_until_it_is_closed() -> None:
    b = bench(D0, scripts={"d0": [streamed(ROLE_CHUNK, CONTENT, DONE)]})
    stream = stream_of(await attempt(b))
    assert (b.load.counts(), b.engines.answers[0].closed) == ({"d0": 1}, 0)
    stream.close()
    stream.close()
    assert (b.load.counts(), b.engines.answers[0].closed) == ({}, 1)


@pytest.mark.parametrize(
    "answer",
    [
        document({"choices": []}),
        document({}, 500),
        streamed(b'data: {"error":{"code":500}}\n\n'),
        streamed(broken(Cause.DISCONNECTED)),
        Scripted(headers=JSON, chunks=[broken(Cause.DISCONNECTED)]),
    ],
)
async def test_whatever_is_no_stream_leaves_at_once(answer: Scripted) -> None:
    b = bench(D0, scripts={"d0": [answer]})
    await attempt(b)
    assert (b.load.counts(), b.engines.answers[0].closed) == ({}, 1)


@pytest.mark.parametrize("answer", [streamed(ROLE_CHUNK, None), Scripted(headers=JSON, chunks=[None])])
async def test_a_cancelled_attempt_leaves_nothing(answer: Scripted) -> None:
    b = bench(D0, scripts={"d0": [answer]})
    task = asyncio.create_task(attempt(b))
    for _ in range(5):
        await asyncio.sleep(0)
    assert b.load.counts() == {"d0": 1}
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (b.load.counts(), b.engines.answers[0].closed) == ({}, 1)


async def test_a_stream_without_content_is_passed_on() -> None:
    b = bench(D0, scripts={"d0": [streamed(ROLE_CHUNK)]})
    assert await relayed(await attempt(b)) == (ROLE_CHUNK, None)


async def test_a_head_that_has_no_end_is_paused_until_it_is_relayed() -> None:
    large = b"x" * HEAD_LIMIT_BYTES
    b = bench(D0, scripts={"d0": [streamed(large, b"x", b"y\n\n")]})
    outcome = await attempt(b)
    assert b.engines.answers[0].chunks == [b"y\n\n"]
    assert await relayed(outcome) == (large + b"xy\n\n", None)


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


async def test_a_pause_in_the_first_write_holds() -> None:
    answer = streamed(CONTENT, DONE)
    stream = open_stream(answer, head=ROLE_CHUNK + CONTENT)
    sink = Recorder(stream, pause_at=1)
    stream.relay(sink)
    assert (bytes(sink.body), answer.paused) == (ROLE_CHUNK + CONTENT, True)
    stream.resume()
    assert (bytes(sink.body), sink.over.result()) == (ROLE_CHUNK + CONTENT + CONTENT + DONE, None)


async def test_a_closed_stream_is_silent() -> None:
    answer, closed = streamed(None), list[int]()
    stream, sink = open_stream(answer, idle=0.01, closed=closed), Recorder()
    stream.relay(sink)
    stream.close()
    stream.close()
    assert stream._timer is None
    stream.end()
    assert (sink.over.done(), answer.closed, closed) == (False, 1, [1])


async def test_an_event_without_end_breaks_the_stream() -> None:
    answer = streamed(b"data: " + b"x" * EVENT_LIMIT_BYTES, DONE)
    stream, sink = open_stream(answer), Recorder()
    stream.relay(sink)
    broke = sink.over.result()
    assert broke is not None
    assert (broke.cause, bytes(sink.body), answer.closed) == (Cause.PROTOCOL, b"", 1)


async def test_only_headers_that_mean_something_to_clients_are_passed_on() -> None:
    answer = streamed(ROLE_CHUNK, CONTENT)
    answer.headers = {"content-type": "text/event-stream; charset=utf-8", "server": "uvicorn", "retry-after": "3"}
    outcome = await attempt(bench(D0, scripts={"d0": [answer]}))
    assert outcome.reply is not None
    assert outcome.reply.headers == {"content-type": "text/event-stream; charset=utf-8", "retry-after": "3"}


async def test_a_stream_over_a_connection_loses_nothing_before_and_after_its_relay() -> None:
    events = [ROLE_CHUNK, *([CONTENT] * 300), DONE]

    async def behave(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        await peer.send(*(b"%x\r\n%b\r\n" % (len(event), event) for event in events), b"0\r\n\r\n")
        await peer.closed()

    async with HttpTransport() as transport, raw_engine(behave) as engine:
        load = InFlight()
        side = PrefillSide(transport=transport, load=load, idle_seconds=60)
        outcome = await side.attempt(arrival(), replace(D0, address=engine.address))
        for _ in range(100):
            await asyncio.sleep(0)
        assert await relayed(outcome) == (b"".join(events), None)


class ChunkRecorder(Recorder):
    """A sink that takes chunks as they came, and keeps those."""

    def __init__(self) -> None:
        super().__init__()
        self.chunks: list[bytes] = []

    def write_chunk(self, framed: bytes, start: int) -> None:
        content = framed[start:-2]
        assert framed == b"%x\r\n%b\r\n" % (len(content), content)
        self.chunks.append(content)
        self.write(content)


def relayed_over_a_wire(pieces: list[bytes]) -> ChunkRecorder:
    line = Line()
    answer = line.ask()
    line.hear(CHUNKED)
    stream, sink = open_stream(answer), ChunkRecorder()
    stream.relay(sink)
    line.hear(*pieces)
    stream.close()
    return sink


def chunks(*contents: bytes) -> list[bytes]:
    return [b"%x\r\n%b\r\n" % (len(content), content) for content in contents]


async def test_an_event_that_comes_as_a_chunk_passes_as_it_is() -> None:
    sink = relayed_over_a_wire([*chunks(ROLE_CHUNK, CONTENT, DONE), b"0\r\n\r\n"])
    # the first is behind the head, of which the parser can't say that nothing follows
    assert (bytes(sink.body), sink.chunks) == (ROLE_CHUNK + CONTENT + DONE, [CONTENT, DONE])
    assert sink.over.result() is None


async def test_a_chunk_passes_only_if_nothing_is_to_be_done() -> None:
    first, second = CONTENT[:9], CONTENT[9:]
    sink = relayed_over_a_wire([*chunks(CONTENT, first, second, LAST, CONTENT), b"0\r\n\r\n"])
    assert (bytes(sink.body), sink.chunks) == (CONTENT + CONTENT + STRIPPED + CONTENT, [CONTENT])


@given(
    st.lists(st.sampled_from([CONTENT, ROLE_CHUNK, LAST, CONTENT[:9], CONTENT[9:], CONTENT * 3, b"\n"]), max_size=12),
    st.lists(st.integers(1, 400), max_size=12),
)
async def test_however_a_stream_is_cut_its_client_gets_the_same(contents: list[bytes], cuts: list[int]) -> None:
    sent = b"".join([*chunks(*contents), b"0\r\n\r\n"])
    at, pieces = 0, list[bytes]()
    for cut in cuts:
        pieces.append(sent[at : at + cut])
        at += cut
    pieces = [piece for piece in [*pieces, sent[at:]] if piece]
    by_chunk = [*chunks(*contents), b"0\r\n\r\n"]
    whole = relayed_over_a_wire([sent])
    for sink in (relayed_over_a_wire(pieces), relayed_over_a_wire(by_chunk)):
        assert (bytes(sink.body), sink.over.result()) == (bytes(whole.body), None)
