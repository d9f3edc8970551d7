"""Bytes of an answer, however they come: what a connection makes of them. The test is the transport."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epd.proxy.transport import Cause, TransportError
from epd.proxy.upstream import HEAD_BYTES, OVERHEAD_BYTES
from unit.proxy.outcomes import LENGTH, Outcome, outcome
from unit.proxy.rawengine import CHUNKED, OK, Recorder
from unit.proxy.wires import Line

TE = {"transfer-encoding": "chunked"}
GOOD = {
    "length": ([OK], Outcome(200, LENGTH, b"ok", None, True)),
    "chunked": ([CHUNKED + b"1\r\no\r\n1;ext=1\r\nk\r\n0\r\n\r\n"], Outcome(200, TE, b"ok", None, True)),
    "trailers": ([CHUNKED + b"2\r\nok\r\n0\r\nx-t: 1\r\nstatus: 9\r\n\r\n"], Outcome(200, TE, b"ok", None, True)),
    "interim": ([b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\n", OK],
                Outcome(200, LENGTH, b"ok", None, True)),
    "no body": ([b"HTTP/1.1 204 No Content\r\nx: 1\r\n\r\n"], Outcome(204, {"x": "1"}, b"", None, True)),
    "not modified": ([b"HTTP/1.1 304 X\r\ncontent-length: 2\r\n\r\n"], Outcome(304, LENGTH, b"", None, True)),
    "empty": ([b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n"],
              Outcome(500, {"content-length": "0"}, b"", None, True)),
    "close": ([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"],
              Outcome(200, {**LENGTH, "connection": "close"}, b"ok", None, False)),
    "old": ([b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok"], Outcome(200, LENGTH, b"ok", None, False)),
    "until the end": ([b"HTTP/1.1 200 OK\r\n\r\no", b"k"], Outcome(200, {}, b"ok", None, False)),
    "gzip until the end": ([b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nok"],
                           Outcome(200, {"transfer-encoding": "gzip"}, b"ok", None, False)),
    "more than the answer": ([OK + OK], Outcome(200, LENGTH, b"ok", None, False)),
    "rubbish behind": ([OK + b"x"], Outcome(200, LENGTH, b"ok", None, False)),
    "rubbish behind a close": ([b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nokx"],
                               Outcome(200, {**LENGTH, "connection": "close"}, b"ok", None, False)),
    "one header twice": ([b"HTTP/1.1 200 OK\r\nVary: a\r\nvary: b\r\ncontent-length: 2\r\n\r\nok"],
                         Outcome(200, {"vary": "a, b", **LENGTH}, b"ok", None, True)),
}  # fmt: skip
BAD = {
    "garbage": ([b"SSH-2.0-OpenSSH_9.6\r\n"], Outcome(0, None, b"", Cause.PROTOCOL, False)),
    "another protocol": ([b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"],
                         Outcome(0, None, b"", Cause.PROTOCOL, False)),
    "two lengths": ([b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok"],
                    Outcome(0, None, b"", Cause.PROTOCOL, False)),
    "length and chunked": ([b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\nok"],
                           Outcome(0, None, b"", Cause.PROTOCOL, False)),
    "bad chunk": ([CHUNKED + b"2\r\nok\r\nzz\r\n"], Outcome(200, TE, b"ok", Cause.PROTOCOL, False)),
    "nothing": ([], Outcome(0, None, b"", Cause.DISCONNECTED, False)),
    "half a head": ([b"HTTP/1.1 200 OK\r\ncontent"], Outcome(0, None, b"", Cause.DISCONNECTED, False)),
    "interim only": ([b"HTTP/1.1 100 Continue\r\n\r\n"], Outcome(0, None, b"", Cause.DISCONNECTED, False)),
    "short": ([OK[:-1]], Outcome(200, LENGTH, b"o", Cause.DISCONNECTED, False)),
    "short chunk": ([CHUNKED + b"2\r\no"], Outcome(200, TE, b"o", Cause.DISCONNECTED, False)),
    "no last chunk": ([CHUNKED + b"2\r\nok\r\n"], Outcome(200, TE, b"ok", Cause.DISCONNECTED, False)),
    "no end of the trailers": ([CHUNKED + b"2\r\nok\r\n0\r\n"], Outcome(200, TE, b"ok", Cause.DISCONNECTED, False)),
    "large head": ([b"HTTP/1.1 200 OK\r\nx: " + b"x" * HEAD_BYTES + b"\r\ncontent-length: 2\r\n\r\nok"],
                   Outcome(0, None, b"", Cause.PROTOCOL, False)),
}  # fmt: skip


@pytest.mark.parametrize(("pieces", "expected"), [*GOOD.values(), *BAD.values()], ids=[*GOOD, *BAD])
@pytest.mark.parametrize("size", [1, 3, 17, 1 << 20])
async def test_an_answer_is_the_same_however_it_comes(pieces: list[bytes], expected: Outcome, size: int) -> None:
    data = b"".join(pieces)
    if len(data) > HEAD_BYTES and size < 17:
        size = 1000  # as well, and 100 times faster
    cut = [data[start : start + size] for start in range(0, len(data), size)]
    seen = await outcome(*cut, eof=True)
    assert seen == expected


@dataclass
class ByChunks(Recorder):
    """Takes chunks as they came; `whole` has their contents."""

    def __init__(self) -> None:
        super().__init__()
        self.whole: list[bytes] = []

    def write_chunk(self, framed: bytes, start: int) -> None:
        self.whole.append(framed[start:-2])
        self.write(framed[start:-2])


async def test_chunks_that_come_whole_are_handed_on_so() -> None:
    line, sink = Line(), ByChunks()
    line.ask().relay(sink)
    line.hear(CHUNKED, b"2\r\nok\r\n", b"3\r\nyes\r\n", b"1\r\n", b"x\r\n", b"1\r\ny\r\n", b"0\r\n\r\n")
    assert (bytes(sink.body), sink.whole, line.freed) == (b"okyesxy", [b"yes", b"y"], 1)


@pytest.mark.parametrize(("begun", "size"), [(b"1", 0x12), (b"5;x=", 5)], ids=["size", "extension"])
@pytest.mark.parametrize("together", [False, True])
async def test_what_looks_like_a_chunk_behind_a_part_of_its_size_is_none(
    begun: bytes, size: int, together: bool
) -> None:
    line, sink = Line(), ByChunks()
    line.ask().relay(sink)
    line.hear(CHUNKED, *([b"1\r\na\r\n" + begun] if together else [b"1\r\na\r\n", begun]))
    content = b"ok\r\n".ljust(size, b"x")
    line.hear(b"2\r\n" + content[:4], content[4:] + b"\r\n", b"0\r\n\r\n")
    assert (bytes(sink.body), sink.whole, line.freed) == (b"a" + content, [], 1)


async def test_an_endless_head_is_given_up_before_it_ends() -> None:
    line = Line()
    answer = line.ask()
    pieces = 0
    line.hear(b"HTTP/1.1 200 OK\r\nx: ")
    while not line.wire.aborted and pieces < 1000:
        line.hear(b"x" * 1000)
        pieces += 1
    assert pieces == OVERHEAD_BYTES // 1000 + 1
    error = answer.arrived.exception()
    assert isinstance(error, TransportError)
    assert error.cause is Cause.PROTOCOL


@pytest.mark.parametrize("flood", [b"HTTP/1.1 102 Wait\r\n\r\n", b"x: y\r\n"])
async def test_what_carries_no_body_has_a_bound_too(flood: bytes) -> None:
    line = Line()
    answer = line.ask()
    sink = Recorder()
    answer.relay(sink)
    if b"HTTP" not in flood:
        line.hear(CHUNKED + b"0\r\n")
    for _ in range(OVERHEAD_BYTES // len(flood) + 2):
        line.hear(flood)
    assert line.wire.aborted
    failed = sink.over.result() if sink.over.done() else answer.arrived.exception()
    assert isinstance(failed, TransportError)
    assert failed.cause is Cause.PROTOCOL


INTERIM = st.sampled_from(
    [b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" * 2]
)
NAMES = st.text("abcxyz-", min_size=1, max_size=8).filter(lambda name: not name.startswith("-"))
VALUES = st.text("abc ,;=/\"'\xe9", max_size=12).map(str.strip)


@st.composite
def valid(draw: st.DrawFn) -> tuple[bytes, bool, Outcome]:
    """An answer as bytes, whether its end is the connection's, and what must come of it."""
    status = draw(st.sampled_from([200, 201, 404, 500]))
    headers = draw(st.dictionaries(NAMES, VALUES, max_size=4))
    pieces = draw(st.lists(st.binary(min_size=1, max_size=40), max_size=6))
    framing = draw(st.sampled_from(["length", "chunked", "end"]))
    body = b"".join(pieces)
    if framing == "length":
        headers["content-length"] = str(len(body))
        sent = body
    elif framing == "chunked":
        headers["transfer-encoding"] = "chunked"
        sent = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
        sent += b"0\r\n" + draw(st.sampled_from([b"", b"x-trailer: y\r\n"])) + b"\r\n"
    else:
        sent = body
    closes = framing != "end" and draw(st.booleans())
    if closes:
        headers["connection"] = "close"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("latin-1")
    data = draw(INTERIM) + b"HTTP/1.1 %d X\r\n%b\r\n%b" % (status, lines, sent)
    kept = framing != "end" and not closes
    return data, framing == "end", Outcome(status, headers, body, None, kept)


@given(valid(), st.data())
def test_any_split_of_any_answer_gives_the_answer(answer: tuple[bytes, bool, Outcome], data: st.DataObject) -> None:
    raw, eof, expected = answer
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=12)))
    pieces = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True) if end > start]
    assert asyncio.run(outcome(*pieces, eof=eof)) == expected


@given(valid(), st.data())
def test_an_answer_that_is_cut_short_never_looks_complete(
    answer: tuple[bytes, bool, Outcome], data: st.DataObject
) -> None:
    raw, eof, expected = answer
    cut = data.draw(st.integers(0, len(raw) - 1))
    seen = asyncio.run(outcome(raw[:cut], eof=True) if cut else outcome(eof=True))
    if seen.cause is None:
        assert eof, "only a body that ends with its connection may end anywhere"
    else:
        assert seen.cause is Cause.DISCONNECTED
        assert expected.body.startswith(seen.body)
        assert not seen.kept


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_no_bytes_at_all_raise_anything_else(pieces: list[bytes]) -> None:
    prefix = b"HTTP/1.1 200 OK\r\n"
    for start in ([], [prefix], [CHUNKED]):
        asyncio.run(outcome(*start, *(piece for piece in pieces if piece), eof=True))
