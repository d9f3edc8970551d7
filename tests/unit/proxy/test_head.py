from __future__ import annotations

import pytest

from epd.proxy import head
from epd.proxy.errors import ProxyError
from epd.proxy.head import HEAD_LIMIT, LINE_LIMIT, Head, check_part, parse_head


def parse(text: str) -> Head:
    data = text.replace("\n", "\r\n").encode("latin-1")
    return parse_head(data, len(data))


def refused(text: str) -> int:
    with pytest.raises(ProxyError) as refusal:
        parse(text)
    return refusal.value.status


def test_a_head() -> None:
    assert parse(
        "POST /v1/x?a=b HTTP/1.1\nHost: p\nX-A:\t1 \nx-a: 2\nCookie: a\ncookie: b\nContent-Length: 007\n"
    ) == Head(
        method="POST",
        target="/v1/x?a=b",
        path="/v1/x",
        headers={"host": "p", "x-a": "1, 2", "cookie": "a; b", "content-length": "007"},
        length=7,
        minor=1,
        persistent=True,
        expects=False,
    )


@pytest.mark.parametrize(
    ("minor", "connection", "persistent"),
    [
        (1, None, True),
        (1, "close", False),
        (1, "Keep-Alive, CLOSE", False),
        (1, "upgrade", True),
        (1, "closed", True),
        (0, None, False),
        (0, "keep-alive", False),
        (0, "upgrade", False),
    ],
)
def test_whether_the_connection_stays(minor: int, connection: str | None, persistent: bool) -> None:
    field = "" if connection is None else f"Connection: {connection}\n"
    assert parse(f"GET / HTTP/1.{minor}\nHost: p\n{field}").persistent is persistent


@pytest.mark.parametrize(
    ("fields", "expects"),
    [
        ("Expect: 100-Continue\nContent-Length: 5\n", True),
        ("Expect: 100-continue\nTransfer-Encoding: chunked\n", True),
        ("Expect: 100-continue\nContent-Length: 0\n", False),
        ("Expect: 100-continue\n", False),
        ("Content-Length: 5\n", False),
    ],
)
def test_whether_the_client_waits_for_a_word(fields: str, expects: bool) -> None:
    assert parse(f"POST / HTTP/1.1\nHost: p\n{fields}").expects is expects
    assert not parse(f"POST / HTTP/1.0\n{fields.replace('Transfer-Encoding: chunked', 'Content-Length: 5')}").expects


def test_framing() -> None:
    assert parse("GET / HTTP/1.1\nHost: p\n").length == 0
    assert parse("GET / HTTP/1.1\nHost: p\nTransfer-Encoding: CHUNKED\n").length is None
    assert parse(f"GET / HTTP/1.1\nHost: p\nContent-Length: {'9' * 18}\n").length == 10**18 - 1
    assert refused(f"GET / HTTP/1.1\nHost: p\nContent-Length: {'9' * 19}\n") == 400


def test_limits_are_where_they_are_said_to_be() -> None:
    line = "GET /" + "x" * (LINE_LIMIT - len("GET / HTTP/1.1")) + " HTTP/1.1\n"
    assert len(parse(f"{line}Host: p\n").path) > 8000
    assert refused(line.replace("x ", "xx ") + "Host: p\n") == 414
    start = "GET / HTTP/1.1\r\nHost: p\r\nX: "
    exact = start + "y" * (HEAD_LIMIT - len(start) - 2) + "\n"
    assert len(parse(exact.replace("\r\n", "\n")).headers["x"]) > 32_000
    assert refused(exact.replace("\r\n", "\n").replace("y\n", "yy\n")) == 431
    assert len(parse("GET / HTTP/1.1\nHost: p\n" + "X: y\n" * 99).headers) == 2
    assert refused("GET / HTTP/1.1\nHost: p\n" + "X: y\n" * 100) == 431


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("GET / HTTP/1.1\nHost: p\nX: a\n b\n", "folded"),
        ("GET / HTTP/1.1\nHost: p\nabc\n", "no colon"),
        ("GET / HTTP/1.1\nHost: p\nX : a\n", "space stands before its colon"),
        ("GET / HTTP/1.1\nHost: p\nX: \0\n", "control character"),
        ("GET / HTTP/1.1\nHost: p\nHost: p\n", "host is there twice"),
        ("GET / HTTP/1.1\n", "Host field is missing"),
        ("PRI * HTTP/2.0\n", "only HTTP/1.1 and HTTP/1.0"),
    ],
)
def test_a_refusal_says_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(ProxyError, match=words):
        parse(text)


def test_a_part_is_refused_as_soon_as_it_can_be_nothing_right() -> None:
    for part, status in [
        (b"GET / HTTP/1.1\n", 400),
        (b"GET /\r\n", 400),
        (b"GET / HTTP/3.0\r\n", 505),
        (b"\x16\x03", 400),
        (b"GET / HTTP/1.1\r\nX: a\rb", 400),
        (b"x" * (LINE_LIMIT + 1), 414),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * HEAD_LIMIT, 431),
    ]:
        with pytest.raises(ProxyError) as refusal:
            check_part(part, 0)
        assert refusal.value.status == status, part[:40]
    for part in (b"G", b"GET / HTTP/1.1\r", b"GET / HTTP/1.1\r\nX: a\r", b"x" * LINE_LIMIT):
        check_part(part, 0)


def test_a_line_end_in_two_parts_is_one() -> None:
    head = b"GET / HTTP/1.1\r\nX: a\r\n"
    for end in range(1, len(head) + 1):
        check_part(head[:end], end - 1)
    with pytest.raises(ProxyError):
        check_part(b"GET / HTTP/1.1\r\nX: a\n", len(b"GET / HTTP/1.1\r\nX: a"))
    with pytest.raises(ProxyError):
        check_part(b"GET / HTTP/1.1\r\nX: a\rb", len(b"GET / HTTP/1.1\r\nX: a\r"))


def test_no_secret_is_remembered() -> None:
    secret = "sk-remembered-by-nobody"
    fields = (f"Authorization: Bearer {secret}", f"X-API-Key: {secret}", f"cookie: a={secret}", "x-plain: remembered")
    for _ in range(2):
        assert parse("GET / HTTP/1.1\nhost: p\n" + "".join(f"{field}\n" for field in fields)).headers == {
            "host": "p",
            "authorization": f"Bearer {secret}",
            "x-api-key": secret,
            "cookie": f"a={secret}",
            "x-plain": "remembered",
        }
    assert b"x-plain: remembered" in head._fields
    assert not [line for line in head._fields if secret.encode() in line]
