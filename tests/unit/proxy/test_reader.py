"""The reader of requests against the tables, and against a second reader that is simple, slow and as strict."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epd.proxy.errors import ProxyError
from epd.proxy.head import Head
from epd.proxy.reader import RequestReader
from unit.proxy.malformed import BODY, MALFORMED, VALID
from unit.proxy.recorder import Recorder, Wire
from unit.proxy.secondreader import NASTY, reference


@dataclass
class Seen:
    """What a reader has told of. `complete` has the body of each whole request."""

    heads: list[Head] = field(default_factory=list)
    body: bytes = b""
    complete: list[bytes] = field(default_factory=list)

    def head_read(self, head: Head, *, more: bool) -> None:
        self.heads.append(head)
        self.body = b""

    def body_read(self, piece: bytes) -> None:
        self.body += piece

    def body_complete(self) -> None:
        self.complete.append(self.body)


def read(data: bytes, *, size: int) -> Seen:
    """Feed pieces of `size` bytes. Raises ProxyError."""
    seen = Seen()
    reader, rest = RequestReader(seen), b""
    for start in range(0, len(data), size):
        rest += data[start : start + size]
        at = 0
        while at < len(rest) and (after := reader.step(rest, at)) != at:
            at = after
        rest = rest[at:]
    return seen


@pytest.mark.parametrize(("data", "status"), MALFORMED.values(), ids=MALFORMED.keys())
@pytest.mark.parametrize("size", [1, 10**6])
def test_what_is_malformed_is_refused_however_it_comes(data: bytes, status: int, size: int) -> None:
    with pytest.raises(ProxyError) as refusal:
        read(data, size=size)
    assert refusal.value.status == status


@pytest.mark.parametrize("data", VALID.values(), ids=VALID.keys())
@pytest.mark.parametrize("size", [1, 2, 7, 10**6])
def test_what_is_valid_is_read_however_it_comes(data: bytes, size: int) -> None:
    assert read(data, size=size).complete == [BODY]


@pytest.mark.parametrize("size", [1, 13, 10**6])
def test_requests_follow_each_other_without_anything_between(size: int) -> None:
    seen = read(b"".join(VALID.values()), size=size)
    assert seen.complete == [BODY] * len(VALID)
    assert {head.path for head in seen.heads} == {"/v1/chat/completions"}


def test_a_large_body_is_passed_on_as_it_came() -> None:
    seen, pieces = Seen(), [b"x" * 1000, b"y" * 1000]
    reader = RequestReader(seen)
    head = b"POST / HTTP/1.1\r\nHost: p\r\nContent-Length: 2000\r\n\r\n"
    assert reader.step(head, 0) == len(head)
    assert (reader.in_body, reader.left) == (True, 2000)
    assert reader.step(pieces[0], 0) == 1000
    assert reader.left == 1000
    assert reader.step(pieces[1] + b"GET", 0) == 1000
    assert (reader.in_body, seen.complete) == (False, [b"".join(pieces)])


def test_the_second_reader_reads_the_tables_alike() -> None:
    for name, data in VALID.items():
        requests, _ = reference(data)
        assert [body for _, _, body in requests] == [BODY], name
    for name, (data, _) in MALFORMED.items():
        # what has no end it can only wait for
        assert reference(data)[1] in ("refused", "incomplete"), name
        assert reference(data)[0] == [], name


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Valid requests one behind the other, with a few places changed."""
    data = b"".join(draw(st.lists(st.sampled_from(list(VALID.values())), min_size=1, max_size=3)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        cut = draw(st.sampled_from([0, 0, 1, 2, 20]))
        data = data[:at] + draw(st.sampled_from([b"", *NASTY])) + data[at + cut :]
    return data


@settings(max_examples=300, deadline=None)
@given(data=mutated(), size=st.sampled_from([1, 2, 5, 64, 10**6]))
def test_no_two_readings_of_what_comes(data: bytes, size: int) -> None:
    expected, state = reference(data)
    recorder = Recorder()

    async def serve() -> tuple[Wire, list[int]]:
        wire = Wire(recorder)
        wire.receive(data, size=size)
        return wire, await wire.statuses()

    wire, statuses = asyncio.run(serve())
    got = [(turn.head.method.encode(), turn.head.target.encode(), turn.body) for turn in recorder.answered]
    assert got == expected
    # one answer per request, one for what is none, and after that one nothing
    assert statuses[: len(expected)] == [200] * len(expected)
    refusals = statuses[len(expected) :]
    assert len(refusals) == len(recorder.refusals) == (state == "refused" or (state == "incomplete" and bool(refusals)))
    assert all(400 <= status <= 505 for status in refusals)
    assert wire.state == ("open" if state != "closed" and not refusals else "half-closed")
    assert all(turn.ends == [False] for turn in recorder.turns if turn.ends)
    assert len([turn for turn in recorder.turns if not turn.ends]) <= (state == "incomplete")
