"""A second reader of requests, simple, slow and as strict as the proxy's; and bytes to spoil requests with."""

from __future__ import annotations

import string

NASTY = (
    *(b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"\0", b" ", b"\t", b":", b",", b";", b"#", b"\x7f", b"\xff", b"0", b"5"),
    *(b"-", b"+", b"chunked", b"identity", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"HTTP/1.0"),
    *(b"Host: q\r\n", b"GET / HTTP/1.1\r\n", b"0\r\n\r\n", b"Connection: close\r\n", b"Expect: 100-continue\r\n"),
)

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
