from __future__ import annotations

import pytest

from epd.proxy import framing
from epd.proxy.framing import begin_of_chunk, call_head, chunk, reply_head
from epd.proxy.transport import Call


def head(status: int = 200, headers: dict[str, str] | None = None, **framing: object) -> list[str]:
    arguments = {"length": 5, "chunked": False, "close": False, **framing}
    lines = reply_head(status, headers or {}, **arguments).decode("ascii")  # type: ignore[arg-type] # a table
    assert lines.endswith("\r\n\r\n")
    assert lines.count("\n") == lines.count("\r\n")
    return [line for line in lines.split("\r\n") if not line.startswith(("date:", "server:")) and line]


def test_heads() -> None:
    assert head(headers={"a": "b"}) == ["HTTP/1.1 200 OK", "a: b", "content-length: 5"]
    assert head(length=None, chunked=True) == ["HTTP/1.1 200 OK", "transfer-encoding: chunked"]
    assert head(length=None, close=True) == ["HTTP/1.1 200 OK", "connection: close"]
    assert head(204, length=0) == ["HTTP/1.1 204 No Content"]
    assert head(499) == ["HTTP/1.1 499 ", "content-length: 5"]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("a\r\nset-cookie: x", "a%0D%0Aset-cookie: x"),
        ("a\nb", "a%0Ab"),
        ("\0", "%00"),
        ("a\udce9b", "a?b"),
        ("ü %", "%C3%BC %"),
        ('a, b;c="d"', 'a, b;c="d"'),
    ],
)
def test_no_value_can_begin_a_field(value: str, written: str) -> None:
    assert head(headers={"x": value})[1] == f"x: {written}"


def test_chunks() -> None:
    assert chunk(b"x" * 26) == b"1a\r\n" + b"x" * 26 + b"\r\n"


@pytest.mark.parametrize(
    ("data", "start"),
    [
        (b"1\r\nx\r\n", 3),
        (b"00a\r\n0123456789\r\n", 5),
        (b"A\r\n01234567\r\n\r\n", 3),
        (b"0\r\n\r\n", 0),
        (b"2\r\nx\r\n", 0),
        (b"1\r\nxy\r\n", 0),
        (b"1\r\nx\r\n1\r\ny\r\n", 0),
        (b"1;a=b\r\nx\r\n", 0),
        (b"+1\r\nx\r\n", 0),
        (b"0x1\r\nx\r\n", 0),
        (b" 1\r\nx\r\n", 0),
        (b"1\r\nx\n\r", 0),
        (b"1\r\nx", 0),
        (b"\r\n", 0),
    ],
)
def test_what_is_one_chunk(data: bytes, start: int) -> None:
    assert begin_of_chunk(data) == start


@pytest.mark.parametrize(("method", "size", "length"), [("POST", 2, "2"), ("POST", 0, "0"), ("GET", 0, None)])
def test_heads_of_calls(method: str, size: int, length: str | None) -> None:
    call = Call(address="http://e", path="/v1/x?y=1", method=method, headers={"a": "b"})
    said = "" if length is None else f"content-length: {length}\r\n"
    wanted = f"{method} /v1/x?y=1 HTTP/1.1\r\nhost: e\r\na: b\r\n{said}\r\n"
    assert call_head(call, "host: e\r\n", size) == wanted.encode()


@pytest.mark.parametrize("part", ["path", "name", "value"])
@pytest.mark.parametrize("sign", ["\r", "\n", "\0"])
def test_no_call_has_a_line_that_ends_early(part: str, sign: str) -> None:
    bad = f"a{sign}b"
    path = f"/{bad}" if part == "path" else "/"
    headers = {"name": {bad: "v"}, "value": {"n": bad}}.get(part, {})
    with pytest.raises(ValueError, match="no room"):
        call_head(Call(address="http://e", path=path, headers=headers), "", 0)


def test_lines_are_remembered_in_bounds() -> None:
    for number in range(3000):
        head(headers={"x-epd-prefill": f"pod-{number}", "x-request-id": f"r{number}"})
    long = "p" * 129
    assert f"x-epd-prefill: {long}" in head(headers={"x-epd-prefill": long})
    remembered = framing._lines
    assert 0 < len(remembered) <= 1024
    assert not any(name == "x-request-id" or value == long for name, value in remembered)
    assert head(headers={"x-epd-prefill": "pod-2999"}) == head(headers={"x-epd-prefill": "pod-2999"})
