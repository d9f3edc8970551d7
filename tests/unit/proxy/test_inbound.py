"""One connection over a transport in memory: the order of its requests, and flow control."""

from __future__ import annotations

import asyncio
import time

from epd.proxy.inflow import READ_AHEAD
from epd.proxy.transport import Reply
from unit.proxy.clients import GET, post, refuses, settle, until, waits
from unit.proxy.recorder import RecordedTurn, Recorder, Wire, answers_ok, ok


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
    assert (await wire.statuses(), wire.state, wire.connection._inflow.rest) == ([404], "half-closed", b"")


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


async def test_who_has_sent_no_whole_head_makes_room() -> None:
    release = asyncio.Event()

    async def answers(turn: RecordedTurn) -> Reply:
        await release.wait()
        return await answers_ok(turn)

    begun = time.monotonic()
    idle, part, body, busy = (Wire(Recorder(answers=answers)) for _ in range(4))
    part.receive((GET % 0)[:-2])
    body.receive(post(b"{", length=100))
    busy.receive(GET % 0)
    since = [wire.connection.idle_since for wire in (idle, part, body, busy)]
    assert since[2:] == [None, None]
    for at in since[:2]:
        assert at is not None
        assert begun <= at <= time.monotonic()
    for wire in (idle, part, body, busy):
        wire.connection.make_room()
    assert [wire.state for wire in (idle, part, body, busy)] == ["closed", "aborted", "open", "open"]
    release.set()
    body.receive(b"x" * 99)
    for wire in (body, busy):
        assert await wire.statuses() == [200]


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
