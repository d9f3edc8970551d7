"""Replies over a transport in memory: lengths, streams, HTTP/1.0, and slow clients."""

from __future__ import annotations

import pytest

from epd.proxy.framing import LAST_CHUNK, chunk
from epd.proxy.transport import Cause, Sink, TransportError
from unit.proxy.clients import GET, Stream, post, settle, streams
from unit.proxy.recorder import Recorder, Wire, answers_ok


async def test_head_has_the_length_and_no_body() -> None:
    wire = Wire(Recorder())
    wire.receive(b"HEAD / HTTP/1.1\r\nHost: p\r\n\r\n" + GET % 1)
    await settle()
    first, second, rest = wire.sent.split(b"\r\n\r\n")
    assert b"content-length: 2" in first
    assert (second.startswith(b"HTTP/1.1 200 "), rest) == (True, b"ok")


async def test_head_has_no_stream_behind_it() -> None:
    stream = Stream()
    recorder = streams(stream)
    wire = Wire(recorder)
    wire.receive(b"HEAD / HTTP/1.1\r\nHost: p\r\n\r\n")
    await settle()
    assert wire.sent.endswith(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in wire.sent
    assert (stream.calls, hasattr(stream, "sink"), recorder.turns[0].ends) == (["close"], False, [False])
    recorder.answers, wire.sent = answers_ok, b""
    wire.receive(GET % 1)
    assert await wire.statuses() == [200]


async def test_http_1_0_is_told_that_its_connection_ends() -> None:
    wire = Wire(Recorder())
    wire.receive(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert (await wire.statuses(), wire.state) == ([200], "half-closed")
    assert b"connection: close" in wire.sent


async def test_a_stream_is_one_write_per_event() -> None:
    stream = Stream()
    recorder = streams(stream)
    wire = Wire(recorder)
    wire.receive(post())
    await settle()
    assert b"transfer-encoding: chunked" in wire.sent
    wire.writes.clear()
    for event in (b"data: a\n\n", b"data: b\n\n"):
        stream.sink.write(event)
    stream.sink.end()
    assert wire.writes == [chunk(b"data: a\n\n"), chunk(b"data: b\n\n"), LAST_CHUNK]
    assert (stream.calls, recorder.turns[0].ends, wire.state) == (["close"], [False], "open")


async def test_a_head_goes_out_with_the_first_events() -> None:
    class Ready(Stream):
        def relay(self, sink: Sink) -> None:
            sink.write(b"data: a\n\n")
            sink.end()

    wire = Wire(streams(Ready()))
    wire.receive(post() + GET % 1)
    await settle()
    assert wire.writes[0].endswith(b"\r\n\r\n" + chunk(b"data: a\n\n"))
    assert wire.writes[1] == LAST_CHUNK


async def test_http_1_0_gets_its_stream_without_chunks_and_then_the_end() -> None:
    stream = Stream()
    wire = Wire(streams(stream))
    wire.receive(b"POST / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    await settle()
    assert b"transfer-encoding" not in wire.sent
    wire.writes.clear()
    stream.sink.write(b"data: a\n\n")
    stream.sink.end()
    assert (wire.writes, wire.state) == ([b"data: a\n\n"], "half-closed")


@pytest.mark.parametrize(("minor", "state"), [(b"1", "closed"), (b"0", "aborted")])
async def test_a_stream_that_breaks_never_looks_complete(minor: bytes, state: str) -> None:
    stream = Stream()
    recorder = streams(stream)
    wire = Wire(recorder)
    wire.receive(post().replace(b"HTTP/1.1", b"HTTP/1." + minor))
    await settle()
    stream.sink.write(b"data: a\n\n")
    stream.sink.fail(TransportError(Cause.DISCONNECTED, "gone"))
    assert LAST_CHUNK not in wire.sent
    # the engine broke off, not the client
    assert (wire.state, stream.calls, recorder.turns[0].ends) == (state, ["close"], [False])
    assert (recorder.turns[0].broken, recorder.turns[0].streamed) == (True, len(b"data: a\n\n"))


async def test_a_slow_client_pauses_the_stream() -> None:
    stream = Stream()
    recorder = streams(stream)
    wire = Wire(recorder)
    wire.receive(post())
    await settle()
    wire.connection.pause_writing()
    wire.connection.resume_writing()
    assert stream.calls == ["pause", "resume"]
    wire.connection.pause_writing()
    stream.sink.end()
    # its place is kept until the client has read
    assert recorder.turns[0].ends == []
    wire.connection.resume_writing()
    assert (recorder.turns[0].ends, stream.calls) == ([False], ["pause", "resume", "pause", "close"])
