"""The reader of requests against the tables, and against a second reader that is simple, slow and as strict."""

from __future__ import annotations

import asyncio
import string
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epd.proxy.errors import ProxyError
from epd.proxy.head import Head
from epd.proxy.reader import RequestReader
from unit.proxy.malformed import BODY, MALFORMED, VALID
from unit.proxy.recorder import Recorder, Wire


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


# a second reader

METHODS = b"GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH".split()
TOKEN = set((string.ascii_letters + string.digits + "!#$%&'*+-.^_`|~").encode())
TEXT = {9, *range(32, 127), *range(128, 256)}
ONCE = b"host content-length transfer-encoding authorization content-type content-encoding expect".split()
HOST = set((string.ascii_letters + string.digits + "._~%!$&'()*+,;=:[]-").encode())


class RefusedError(Exception):
    pass


class IncompleteError(Exception):
    pass


def check(condition: object) -> None:
    if not condition:
        raise RefusedError


def line_of(data: bytes) -> tuple[bytes, bytes]:
    line, mark, rest = data.partition(b"\r\n")
    if not mark:
        raise IncompleteError
    return line, rest


def fields_of(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    fields = []
    for line in lines:
        name, colon, value = line.partition(b":")
        check(colon and name and set(name) <= TOKEN and set(value) <= TEXT)
        fields.append((name.lower(), value.strip(b" \t")))
    return fields


def chunked_body(data: bytes) -> tuple[bytes, bytes]:
    body, overhead = b"", 0
    while True:
        line, data = line_of(data)
        digits, semicolon, extension = line.partition(b";")
        digits = digits.rstrip(b" \t") if semicolon else digits
        check(digits and len(digits) <= 15 and set(digits) <= set(string.hexdigits.encode()))
        check(set(extension) <= TEXT and len(line) + 2 <= 256)
        length = int(digits, 16)
        if not length:
            break
        overhead = max(0, overhead + len(line) + 2 - 16 - 2 * length)
        check(overhead <= 16 << 10)
        if len(data) < length + 2:
            check(b"\r\n".startswith(data[length:]))
            raise IncompleteError
        body += data[:length]
        check(data[length : length + 2] == b"\r\n")
        data = data[length + 2 :]
    size = 0
    while True:
        line, data = line_of(data)
        if not line:
            return body, data
        fields_of([line])
        size += len(line) + 2
        check(size <= 4096)


def request_of(data: bytes) -> tuple[tuple[bytes, bytes, bytes], bool, bytes]:
    """The first request as method, target, body; whether more may follow; and what is behind it."""
    data = data.removeprefix(b"\r\n")
    head, mark, data = data.partition(b"\r\n\r\n")
    if not mark:
        raise IncompleteError
    line, *lines = head.split(b"\r\n")
    parts = line.split(b" ")
    check(len(parts) == 3 and len(line) <= 8 << 10 and len(head) + 2 <= 32 << 10 and len(lines) <= 100)
    method, target, version = parts
    check(method in METHODS and version in (b"HTTP/1.1", b"HTTP/1.0"))
    visible = target[:1] == b"/" and set(target) <= set(range(33, 127)) - {35}
    check(visible or (method == b"OPTIONS" and target == b"*"))
    new = version == b"HTTP/1.1"
    fields = fields_of(lines)
    named = {name: [value for other, value in fields if other == name] for name, _ in fields}
    check(all(len(named.get(name, [])) <= 1 for name in ONCE))
    check(set(b"".join(named.get(b"host", []))) <= HOST and (b"host" in named or not new))
    options = b",".join(named.get(b"connection", [])).lower().split(b",")
    options = [option.strip(b" \t") for option in options]
    check(all(value.lower() == b"100-continue" for value in named.get(b"expect", [])))
    body = b""
    if b"transfer-encoding" in named:
        check(new and b"content-length" not in named and named[b"transfer-encoding"][0].lower() == b"chunked")
        body, data = chunked_body(data)
    elif b"content-length" in named:
        [length] = named[b"content-length"]
        check(length and set(length) <= set(string.digits.encode()) and len(length) <= 18)
        if len(data) < int(length):
            raise IncompleteError
        body, data = data[: int(length)], data[int(length) :]
    more = new and b"close" not in options
    return (method, target, body), more, data


def reference(data: bytes) -> tuple[list[tuple[bytes, bytes, bytes]], str]:
    """Every whole request, and how it goes on: `open`, `closed`, `refused`, or `incomplete`."""
    requests = []
    while data:
        try:
            request, more, data = request_of(data)
        except RefusedError:
            return requests, "refused"
        except IncompleteError:
            return requests, "incomplete"
        requests.append(request)
        if not more:
            return requests, "closed"
    return requests, "open"


def test_the_second_reader_reads_the_tables_alike() -> None:
    for name, data in VALID.items():
        requests, _ = reference(data)
        assert [body for _, _, body in requests] == [BODY], name
    for name, (data, _) in MALFORMED.items():
        # what has no end it can only wait for
        assert reference(data)[1] in ("refused", "incomplete"), name
        assert reference(data)[0] == [], name


NASTY = (
    *(b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"\0", b" ", b"\t", b":", b",", b";", b"#", b"\x7f", b"\xff", b"0", b"5"),
    *(b"-", b"+", b"chunked", b"identity", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"HTTP/1.0"),
    *(b"Host: q\r\n", b"GET / HTTP/1.1\r\n", b"0\r\n\r\n", b"Connection: close\r\n", b"Expect: 100-continue\r\n"),
)


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
