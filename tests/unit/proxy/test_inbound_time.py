"""How long clients may take, over a transport in memory."""

from __future__ import annotations

import asyncio

import pytest

from epd.proxy import closing, inbound, patience, serving
from epd.proxy.serving import SWALLOW_LIMIT
from epd.proxy.transport import Reply
from unit.proxy.clients import GET, Stream, post, refuses, refuses_head, settle, streams, until
from unit.proxy.recorder import RecordedTurn, Recorder, Wire, answers_ok, statuses

pytestmark = pytest.mark.interpreted


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IDLE_SECONDS", "HEAD_SECONDS", "BODY_SECONDS", "SWALLOW_SECONDS"):
        monkeypatch.setattr(patience, name, 0.02)
    for user in (inbound, serving):
        monkeypatch.setattr(user, "GRACE_SECONDS", 0.02)
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


async def forever(turn: RecordedTurn) -> Reply:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.usefixtures("short")
async def test_an_answer_that_takes_too_long_is_refused_and_the_connection_goes_on() -> None:
    recorder = Recorder(answers=forever, seconds=0.01)
    wire = Wire(recorder)
    wire.receive(post())
    await until(lambda: bool(wire.sent))
    assert (statuses(wire.sent), wire.state) == ([504], "open")
    assert (recorder.turns[0].cancelled, recorder.turns[0].ends) == (True, [False])
    recorder.answers = answers_ok
    wire.receive(GET % 1)
    assert await wire.statuses() == [504, 200]


@pytest.mark.usefixtures("short")
async def test_an_answer_that_does_not_let_go_in_time_breaks_off() -> None:
    async def clings(turn: RecordedTurn) -> Reply:
        try:
            await forever(turn)
        finally:
            await forever(turn)
        raise AssertionError

    recorder = Recorder(answers=clings, seconds=0.01)
    wire = Wire(recorder)
    wire.receive(post())
    await until(lambda: wire.state == "aborted")
    # which cancels it once more
    await settle()
    assert (statuses(wire.sent), recorder.turns[0].ends) == ([], [False])


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
