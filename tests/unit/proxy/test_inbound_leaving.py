"""Clients that leave, altogether or in one direction, over a transport in memory."""

from __future__ import annotations

import asyncio

import pytest

from epd.proxy import probing
from epd.proxy.framing import CONTINUE, LAST_CHUNK, chunk
from epd.proxy.transport import Reply, Sink
from unit.proxy.clients import GET, Stream, post, settle, streams, until, waits
from unit.proxy.recorder import RecordedTurn, Recorder, Wire


async def test_a_client_that_leaves_cancels_the_task() -> None:
    recorder = waits(asyncio.Event())
    wire = Wire(recorder)
    wire.receive(post())
    await settle()
    wire.close()
    await settle()
    [turn] = recorder.turns
    assert (turn.cancelled, turn.ends, wire.lost) == (True, [True], [wire.connection])


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
    monkeypatch.setattr(probing, "PROBE_SECONDS", 0.001)
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
    monkeypatch.setattr(probing, "PROBE_SECONDS", 0.001)
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
