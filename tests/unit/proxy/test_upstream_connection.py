"""A connection to an engine: answers one after the other, some before their requests are sent, without sockets."""

from __future__ import annotations

from epd.proxy.outgoing import BATCH_BYTES
from epd.proxy.transport import Cause, TransportError
from unit.proxy.outcomes import LENGTH, Outcome, outcome
from unit.proxy.rawengine import OK
from unit.proxy.wires import Line


async def test_the_answer_to_head_ends_with_its_head() -> None:
    assert await outcome(OK[:-2], bodyless=True) == Outcome(200, LENGTH, b"", None, False)


async def test_bytes_that_nobody_asked_for_close_an_idle_connection() -> None:
    line = Line()
    line.ask()
    line.hear(OK)
    assert (line.freed, line.connection.closed) == (1, False)
    line.hear(OK)
    assert line.connection.closed


async def test_a_connection_carries_one_answer_after_another() -> None:
    line = Line()
    for number in range(3):
        answer = line.ask(b"%d" % number)
        line.hear(OK)
        assert (await answer.read(), line.freed) == (b"ok", number + 1)
    assert line.wire.written() == b"HEAD0HEAD1HEAD2"


async def test_a_connection_that_is_broken_off_says_so() -> None:
    line = Line()
    waiting = line.ask()
    line.connection.break_off(TransportError(Cause.DISCONNECTED, "x"))
    assert isinstance(waiting.arrived.exception(), TransportError)
    assert line.wire.aborted


async def test_an_answer_before_the_body_was_sent_is_taken_and_its_connection_is_not() -> None:
    line = Line(full_after=1)
    answer = line.ask(b"x" * (5 * BATCH_BYTES))
    line.hear(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
    assert (answer.status, await answer.read()) == (413, b"no")
    assert (line.wire.aborted, line.freed, len(line.wire.batches)) == (True, 0, 1)


async def test_an_end_while_the_body_is_sent_is_the_end() -> None:
    line = Line(full_after=1)
    answer = line.ask(b"x" * (5 * BATCH_BYTES))
    line.hear(eof=True)
    assert isinstance(answer.arrived.exception(), TransportError)
    assert line.wire.aborted
    line.connection.resume_writing()
    assert len(line.wire.batches) == 1


async def test_heard_says_whether_anything_came() -> None:
    line = Line()
    line.ask()
    line.hear(OK)
    line.ask()
    assert not line.connection.heard
    line.hear(b"H")
    assert line.connection.heard
