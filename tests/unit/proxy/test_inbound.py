"""One connection over a transport in memory: order, flow control, time, and clients that leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from epd.proxy import closing, inbound
from epd.proxy.closing import LINGER_LIMIT
from epd.proxy.errors import BodyTooLargeError, NotFoundError
from epd.proxy.framing import CONTINUE, LAST_CHUNK, chunk
from epd.proxy.inbound import READ_AHEAD, SWALLOW_LIMIT
from epd.proxy.transport import Cause, Reply, Sink, TransportError
from unit.proxy.recorder import RecordedTurn, Recorder, Wire, answers_ok, ok, statuses

GET = b"GET /%d HTTP/1.1\r\nHost: p\r\n\r\n"


def post(body: bytes = b"{}", *fields: bytes, length: int | None = None) -> bytes:
    size = b"Content-Length: %d" % (len(body) if length is None else length)
    return b"\r\n".join([b"POST / HTTP/1.1", b"Host: p", size, *fields, b"", body])


class Stream:
    """A stream that a test pushes."""

    def __init__(self) -> None:
        self.sink: Sink
        self.calls: list[str] = []

    def relay(self, sink: Sink) -> None:
        self.sink = sink

    async def read_chunk(self) -> bytes:
        raise AssertionError

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")

    def close(self) -> None:
        self.calls.append("close")


def streams(stream: Stream) -> Recorder:
    async def answers(turn: RecordedTurn) -> Reply:
        return Reply(status=200, headers={"content-type": "text/event-stream"}, stream=stream)

    return Recorder(answers=answers)


def waits(event: asyncio.Event) -> Recorder:
    async def answers(turn: RecordedTurn) -> Reply:
        await event.wait()
        return ok()

    return Recorder(answers=answers)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what no Event announces, at most 10 s."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - as said
            await asyncio.sleep(0.001)


async def settle() -> None:
    for _ in range(60):
        await asyncio.sleep(0)


# order


async def test_pipelined_requests_are_answered_in_order_and_one_at_a_time() -> None:
    release = asyncio.Event()
    recorder = waits(release)
    wire = Wire(recorder)
    wire.receive(b"".join(GET % number for number in range(5)) + post() + GET % 6)
    await settle()
    assert [turn.head.path for turn in recorder.turns] == ["/0"]
    release.set()
    assert await wire.statuses() == [200] * 7
    assert [turn.head.path for turn in recorder.turns] == ["/0", "/1", "/2", "/3", "/4", "/", "/6"]
    assert all(turn.ends == [False] for turn in recorder.turns)
    assert wire.state == "open"


async def test_many_refused_requests_in_one_read_need_no_stack() -> None:
    wire = Wire(Recorder(begins=refuses))
    wire.receive(b"GET / HTTP/1.1\r\nHost:\r\n\r\n" * 5000)
    assert (await wire.statuses(), wire.state) == ([404] * 5000, "open")


async def test_a_client_that_runs_ahead_is_not_read() -> None:
    release = asyncio.Event()
    wire = Wire(waits(release))
    wire.receive(GET % 0)
    wire.receive(GET % 1 * (READ_AHEAD // len(GET % 1)))
    assert wire.reading
    wire.receive(GET % 1 * 2)
    assert not wire.reading
    release.set()
    await until(lambda: wire.reading)


async def test_a_client_that_has_run_ahead_is_read_while_its_last_request_is_answered() -> None:
    releases = [asyncio.Event(), asyncio.Event()]

    async def answers(turn: RecordedTurn) -> Reply:
        await releases[len(recorder.answered) - 1].wait()
        return ok()

    recorder = Recorder(answers=answers)
    wire = Wire(recorder)
    wire.receive(GET % 0)
    await settle()
    wire.receive(post(b"x" * READ_AHEAD))
    assert not wire.reading
    releases[0].set()
    await until(lambda: len(recorder.answered) == 2)
    # or nobody would learn that it has left
    assert wire.reading


def refuses(turn: RecordedTurn) -> None:
    raise NotFoundError("no")


async def test_refusals_that_nobody_reads_stop_the_reading() -> None:
    wire = Wire(Recorder(begins=refuses))
    wire.high_water = 4096
    wire.receive(GET % 0 * 5000)
    assert (wire.reading, wire.unread < 2 * wire.high_water) == (False, True)
    reads = 0
    while not wire.reading:
        wire.read_all()
        assert wire.unread < 2 * wire.high_water
        reads += 1
    assert reads > 100
    assert (await wire.statuses(), wire.state) == ([404] * 5000, "open")


async def test_a_last_refusal_leaves_nothing_in_memory() -> None:
    wire = Wire(Recorder(begins=refuses, draining=True))
    wire.receive(GET % 0 * 5000)
    assert (await wire.statuses(), wire.state, wire.connection._rest) == ([404], "half-closed", b"")


async def test_nothing_is_read_behind_a_last_request() -> None:
    recorder = Recorder()
    wire = Wire(recorder)
    wire.receive(b"GET / HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n" + GET % 1)
    assert await wire.statuses() == [200]
    assert (len(recorder.turns), wire.state) == (1, "half-closed")
    wire.receive(GET % 2)
    assert await wire.statuses() == [200]
    assert wire.connection.eof_received() is False


async def test_draining_answers_close() -> None:
    recorder = Recorder()
    wire, idle = Wire(recorder), Wire(recorder)
    wire.receive(GET % 0)
    await wire.statuses()
    assert b"connection: close" not in wire.sent
    recorder.draining = True
    wire.connection.close_idle()
    idle.connection.close_idle()
    assert (wire.state, idle.state) == ("closed", "closed")
    late, begun = Wire(recorder), Wire(recorder)
    late.receive(GET % 0)
    begun.receive((GET % 0)[:-2])
    begun.connection.close_idle()
    begun.receive(b"\r\n")
    for one in (late, begun):
        assert (await one.statuses(), one.state) == ([200], "half-closed")
        assert b"connection: close" in one.sent


# 100-continue and refusals before the body


async def test_a_body_is_asked_for_once_its_head_is_accepted() -> None:
    recorder = Recorder()
    wire = Wire(recorder)
    wire.receive(post(b"", b"Expect: 100-continue", length=2))
    assert wire.sent == CONTINUE
    wire.receive(b"{}")
    assert (await wire.statuses(), recorder.turns[0].body) == ([200], b"{}")


async def test_a_body_that_comes_anyway_is_not_asked_for() -> None:
    wire = Wire(Recorder())
    wire.receive(post(b"{}", b"Expect: 100-continue"))
    assert await wire.statuses() == [200]
    assert CONTINUE not in wire.sent


def refuses_head(turn: RecordedTurn) -> None:
    raise BodyTooLargeError("no")


def refuses_body(turn: RecordedTurn) -> None:
    if len(turn.body) > 10:
        raise BodyTooLargeError("no")


@pytest.mark.parametrize(
    "request_",
    [
        post(b"", b"Expect: 100-continue", length=2),
        post(b"{", length=SWALLOW_LIMIT + 2),
        b"POST / HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ],
    ids=["who waits for a word may send the body or not", "a large rest", "a rest of unknown length"],
)
async def test_where_the_next_request_begins_is_not_known_the_connection_ends(request_: bytes) -> None:
    recorder = Recorder(begins=refuses_head)
    wire = Wire(recorder)
    wire.receive(request_)
    wire.receive(b"x" * 1000)
    assert (await wire.statuses(), wire.state) == ([413], "half-closed")
    assert b"connection: close" in wire.sent
    assert CONTINUE not in wire.sent
    assert recorder.turns[0].ends == [False]


@pytest.mark.parametrize("recorder", [Recorder(begins=refuses_head), Recorder(feeds=refuses_body)])
async def test_a_small_rest_is_dropped_and_the_connection_goes_on(recorder: Recorder) -> None:
    wire = Wire(recorder)
    wire.receive(post(b"x" * 1000)[:-500])
    assert statuses(wire.sent) == [413]
    recorder.begins = recorder.feeds = lambda turn: None
    wire.receive(b"x" * 500 + GET % 1)
    assert (await wire.statuses(), wire.state) == ([413, 200], "open")
    assert [len(turn.ends) for turn in recorder.turns] == [1, 1]


async def test_what_comes_after_the_last_answer_is_dropped_within_bounds() -> None:
    wire = Wire(Recorder())
    wire.receive(b"nonsense\r\n\r\n")
    wire.receive(b"x" * LINGER_LIMIT, size=1 << 20)
    assert (await wire.statuses(), wire.state) == ([400], "half-closed")
    wire.receive(b"x")
    assert wire.state == "aborted"


# replies


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


# clients that leave


async def test_a_client_that_leaves_cancels_the_task() -> None:
    recorder = waits(asyncio.Event())
    wire = Wire(recorder)
    wire.receive(post())
    await settle()
    wire.close()
    await settle()
    [turn] = recorder.turns
    assert (turn.cancelled, turn.ends, wire.lost) == (True, [True], [wire.connection])


async def test_a_client_that_leaves_before_the_task_begins_ends_the_turn() -> None:
    recorder = Recorder()
    wire = Wire(recorder)
    wire.receive(post())
    wire.close()
    await settle()
    assert (recorder.answered, recorder.turns[0].ends) == ([], [True])


@pytest.mark.parametrize("fault", ["answer", "send", "cancelled"])
async def test_a_reply_that_cannot_be_sent_breaks_off(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(Stream):
        def relay(self, sink: Sink) -> None:
            raise RuntimeError("no")

    stream = Faulty()

    async def answers(turn: RecordedTurn) -> Reply:
        if fault == "answer":
            raise RuntimeError("no")
        if fault == "cancelled":
            raise asyncio.CancelledError
        return Reply(status=200, headers={}, stream=stream)

    recorder = Recorder(answers=answers)
    wire = Wire(recorder)
    wire.receive(post())
    await settle()
    # not the client's doing
    assert (wire.state, recorder.turns[0].ends) == ("aborted", [False])
    assert stream.calls == (["close"] if fault == "send" else [])
    assert ("a reply could not be sent" in caplog.text) == (fault != "cancelled")


async def test_a_client_that_leaves_closes_the_stream() -> None:
    stream = Stream()
    recorder = streams(stream)
    wire = Wire(recorder)
    wire.receive(post())
    await settle()
    wire.close()
    assert (stream.calls, recorder.turns[0].ends) == (["close"], [True])


async def test_a_client_that_leaves_in_its_body_ends_the_turn() -> None:
    recorder = Recorder()
    wire = Wire(recorder)
    wire.receive(post(b"{", length=100))
    assert wire.connection.eof_received() is False
    wire.close()
    assert (recorder.turns[0].ends, recorder.answered) == ([True], [])


async def test_a_half_closed_client_gets_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbound, "PROBE_SECONDS", 0.001)
    release = asyncio.Event()
    wire = Wire(waits(release))
    wire.receive(GET % 0 + GET % 1)
    await settle()
    assert wire.connection.eof_received() is True
    await until(lambda: wire.sent.count(CONTINUE) >= 3)
    release.set()
    assert await wire.statuses() == [200, 200]
    assert wire.state == "closed"


async def test_a_half_closed_client_of_a_stream_is_sent_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbound, "PROBE_SECONDS", 0.001)
    stream = Stream()
    wire = Wire(streams(stream))
    wire.receive(post())
    await settle()
    assert wire.connection.eof_received() is True
    comment = chunk(b":\n\n")
    await until(lambda: wire.sent.count(comment) >= 3)
    stream.sink.write(b"data: a\n\n")
    stream.sink.end()
    assert wire.sent.endswith(chunk(b"data: a\n\n") + LAST_CHUNK)
    assert wire.state == "closed"


# time


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IDLE_SECONDS", "HEAD_SECONDS", "BODY_SECONDS", "GRACE_SECONDS", "SWALLOW_SECONDS"):
        monkeypatch.setattr(inbound, name, 0.02)
    monkeypatch.setattr(closing, "LINGER_SECONDS", 0.02)


async def over(wire: Wire, state: str) -> list[int]:
    await until(lambda: wire.state == state)
    return statuses(wire.sent)


@pytest.mark.usefixtures("short")
async def test_silence_ends_a_connection() -> None:
    assert await over(Wire(Recorder()), "closed") == []
    used = Wire(Recorder())
    used.receive(GET % 0)
    assert await over(used, "closed") == [200]


@pytest.mark.usefixtures("short")
async def test_a_head_has_to_come_in_time_however_often_a_byte_comes() -> None:
    recorder = Recorder()
    wire = Wire(recorder)
    wire.receive(b"GET / HTTP/1.1\r\nX: ")
    async with asyncio.timeout(10):
        while wire.state == "open":
            wire.receive(b"y")
            await asyncio.sleep(0.002)
    assert (statuses(wire.sent), recorder.turns) == ([408], [])
    assert await over(wire, "aborted") == [408]


@pytest.mark.usefixtures("short")
async def test_a_body_has_to_go_on() -> None:
    recorder = Recorder()
    wire = Wire(recorder)
    wire.receive(post(b"{", length=100))
    assert await over(wire, "half-closed") == [408]
    assert recorder.turns[0].ends == [False]


@pytest.mark.usefixtures("short")
async def test_a_body_has_to_end_by_the_deadline() -> None:
    wire = Wire(Recorder(seconds=0.01))
    wire.receive(post(b"{", length=100))
    assert await over(wire, "half-closed") == [504]


@pytest.mark.usefixtures("short")
async def test_a_client_that_does_not_read_is_let_go_after_the_deadline() -> None:
    stream = Stream()
    recorder = streams(stream)
    recorder.seconds = 0.05
    wire = Wire(recorder)
    wire.receive(post())
    await settle()
    wire.connection.pause_writing()
    assert wire.state == "open"
    await until(lambda: wire.state == "aborted")
    # it is this side that broke off
    assert (stream.calls, recorder.turns[0].ends) == (["pause", "close"], [False])


LAST = b"GET / HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n"


@pytest.mark.usefixtures("short")
async def test_a_last_reply_is_not_cut_off_while_its_client_reads() -> None:
    wire = Wire(Recorder())
    wire.high_water = 1 << 20
    wire.receive(LAST)
    await until(lambda: wire.asked >= 3)
    assert (statuses(wire.sent), wire.state) == ([200], "half-closed")
    wire.read_all()
    assert await over(wire, "aborted") == [200]


@pytest.mark.usefixtures("short")
async def test_a_last_reply_that_nobody_reads_is_given_up_after_the_deadline() -> None:
    wire = Wire(Recorder(seconds=0.05))
    wire.high_water = 1 << 20
    wire.receive(LAST)
    assert await over(wire, "aborted") == [200]


@pytest.mark.usefixtures("short")
async def test_refusals_that_nobody_reads_are_given_up() -> None:
    wire = Wire(Recorder(begins=refuses))
    wire.high_water = 100
    wire.receive(GET % 0 * 5)
    assert await over(wire, "aborted") == [404]


@pytest.mark.usefixtures("short")
async def test_tls_is_closed_as_a_whole() -> None:
    wire, refused = Wire(Recorder()), Wire(Recorder(begins=refuses_head))
    wire.tls = refused.tls = True
    wire.receive(LAST)
    assert (await wire.statuses(), wire.state) == ([200], "closed")
    # what is still on its way would reset the connection
    refused.receive(post(b"{", length=SWALLOW_LIMIT + 2))
    assert (await refused.statuses(), refused.state) == ([413], "open")
    assert await over(refused, "closed") == [413]


@pytest.mark.usefixtures("short")
async def test_the_rest_of_a_refused_body_has_to_come_in_time() -> None:
    wire = Wire(Recorder(begins=refuses_head))
    wire.receive(post(b"{", length=100))
    assert await over(wire, "aborted") == [413]


async def test_a_connection_that_is_used_again_and_again_keeps_one_timer() -> None:
    loop = asyncio.get_running_loop()
    armed = []
    call_at = loop.call_at
    loop.call_at = lambda when, *rest, **more: armed.append(when) or call_at(when, *rest, **more)  # type: ignore[assignment, func-returns-value, method-assign] # a spy
    wire = Wire(Recorder(answers=answers_ok, seconds=600))
    for number in range(100):
        wire.receive(GET % number)
        await settle()
    assert len(armed) == 1
