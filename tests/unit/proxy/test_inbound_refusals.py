"""Refusals before a request is whole, over a transport in memory: 100-continue, and what becomes of the rest."""

from __future__ import annotations

import pytest

from epd.proxy.closing import LINGER_LIMIT
from epd.proxy.framing import CONTINUE
from epd.proxy.serving import SWALLOW_LIMIT
from unit.proxy.clients import GET, post, refuses_body, refuses_head
from unit.proxy.recorder import Recorder, Wire, statuses


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
