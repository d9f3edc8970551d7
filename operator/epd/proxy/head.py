"""Which heads of HTTP/1.1 requests are acceptable, how each of the others is refused, and how the body is framed.

Pure: bytes in, a `Head` or a ProxyError out. Stricter than RFC 9112 has to be: what two readers could read differently
is refused, so a request can't be smuggled past one that stands before this proxy. There is no lenient mode.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from epd.proxy.errors import (
    ExpectationFailedError,
    HeadTooLargeError,
    MalformedRequestError,
    UnknownMethodError,
    UnknownTransferCodingError,
    UnsupportedVersionError,
    UriTooLongError,
)

HEAD_LIMIT: Final = 32 << 10
"""Bytes of a head: four times what servers take by default (8 KiB in NGINX and Apache), for large bearer tokens."""
LINE_LIMIT: Final = 8 << 10
"""Bytes of a request line; RFC 9112 section 3 asks for 8,000 at least."""
FIELDS_LIMIT: Final = 100
"""Header fields, as in Apache; SDKs send about 20."""
END: Final = b"\r\n\r\n"

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST_LINE: Final = re.compile(rb"(" + _TOKEN + rb") (/[\x21\x22\x24-\x7e]*|\*) HTTP/([0-9])\.([0-9])")
"""Origin form, or the asterisk of OPTIONS. Visible ASCII without `#`: a fragment is never sent."""
_FIELD: Final = re.compile(rb"(" + _TOKEN + rb"):([\t\x20-\x7e\x80-\xff]*)")
_KNOWN_LINES: Final = 4096
"""Lines of heads that are remembered: clients send the same ones again and again, and each takes ten times longer to
read than to look up. When there are as many, all are forgotten."""
_KNOWN_LENGTH: Final = 256
"""Bytes of the longest of them, so that all together stay below some 2 MB."""
_FORGOTTEN: Final = frozenset({"authorization", "proxy-authorization", "x-api-key", "cookie"})
"""Fields that are never remembered: they have secrets, which may have been taken back."""
_fields: Final[dict[bytes, tuple[str, str]]] = {}
_request_lines: Final[dict[bytes, tuple[str, str, str, int]]] = {}

_NO_TEXT: Final = re.compile(rb"[^\t\x20-\x7e\x80-\xff\r\n]|(?<!\r)\n|\r(?!\n|\Z)")
"""What stands in no head: control characters, and CR or LF alone."""
_LENGTH_DIGITS: Final = 18
"""As many are below 2^63, so no reader can overflow where this one does not."""
_HOST: Final = re.compile(r"[A-Za-z0-9._~%!$&'()*+,;=:\[\]-]*")

_METHODS: Final = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH"})
"""RFC 9110 section 9 and RFC 5789; methods are case-sensitive."""
_ONCE: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "authorization", "content-type", "content-encoding", "expect"}
)
"""Fields of which two readers could each take another one if there are several."""


@dataclass(slots=True, init=False)
class Head:
    """One head. Header names are lower case, fields of one name are joined (RFC 9110 section 5.3).

    `length` is the body's in bytes: 0 without a body, None where it comes in chunks. `minor` is the version's: 1.0 or
    1.1. `persistent` says that the client wants to send more on this connection, `expects` that it waits to be told to
    send the body.
    """

    method: str
    target: str
    path: str
    headers: dict[str, str]
    length: int | None
    minor: int
    persistent: bool
    expects: bool

    def __init__(
        self,
        method: str,
        target: str,
        path: str,
        headers: dict[str, str],
        length: int | None,
        minor: int,
        persistent: bool,
        expects: bool,
    ) -> None:
        self.method = method
        self.target = target
        self.path = path
        self.headers = headers
        self.length = length
        self.minor = minor
        self.persistent = persistent
        self.expects = expects


def parse_head(data: bytes, end: int) -> Head:
    """Parse the head `data[:end]`, which ends before the empty line. Raises ProxyError; the connection is to be closed.

    `end` includes the line end of the last field.
    """
    # without the last line end, which would be an empty line more
    lines = data[: end - 2].split(b"\r\n")
    # not `get(...) or ...`: compiled, that would put the tuple together anew
    request_line = _request_lines.get(lines[0])
    if request_line is None:
        request_line = _request_line(lines[0])
    method, target, path, minor = request_line
    if end > HEAD_LIMIT:
        raise HeadTooLargeError(f"the head is larger than {HEAD_LIMIT} bytes")
    headers = _headers(lines)
    if minor and "host" not in headers:
        raise MalformedRequestError("the Host field is missing")
    expect = headers.get("expect")
    if expect is not None and expect.lower() != "100-continue":
        raise ExpectationFailedError("the only expectation that can be met is 100-continue")
    length = _body_length(headers, minor)
    # RFC 9110 section 10.1.1: a client of HTTP/1.0 can't expect it, and without a body there is nothing to wait for
    expects = expect is not None and minor == 1 and length != 0
    return Head(method, target, path, headers, length, minor, _persistent(headers.get("connection"), minor), expects)


def check_part(data: bytes, scanned: int) -> None:
    """Refuse a head that is not complete yet but can't become acceptable. Raises ProxyError.

    Bytes before `scanned` were checked by an earlier call.
    """
    line_end = data.find(b"\r\n")
    if line_end >= 0:
        if scanned <= line_end + 1:
            _request_line(data[:line_end])
    elif len(data) > LINE_LIMIT:
        raise UriTooLongError(f"the request line is longer than {LINE_LIMIT} bytes")
    # one byte back: a CR was the last one so far
    if _NO_TEXT.search(data, max(0, scanned - 1)) is not None:
        raise MalformedRequestError("the head has a control character, or a line that does not end in CR LF")
    if len(data) > HEAD_LIMIT:
        raise HeadTooLargeError(f"the head is larger than {HEAD_LIMIT} bytes")


def _request_line(line: bytes) -> tuple[str, str, str, int]:
    """Read a request line: method, target, path, and the minor version."""
    if len(line) > LINE_LIMIT:
        raise UriTooLongError(f"the request line is longer than {LINE_LIMIT} bytes")
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise MalformedRequestError("the request line must be a method, a path and HTTP/1.1, with one space between")
    method, target, major, minor = match.groups()
    if major != b"1" or minor not in b"01":
        raise UnsupportedVersionError("only HTTP/1.1 and HTTP/1.0 are spoken here")
    if method not in _METHODS:
        raise UnknownMethodError("the method is none of HTTP's")
    if target == b"*" and method != b"OPTIONS":
        raise MalformedRequestError("only OPTIONS may have * for a path")
    text = target.decode()
    read = (method.decode(), text, text.partition("?")[0], int(minor))
    if len(line) <= _KNOWN_LENGTH:
        if len(_request_lines) >= _KNOWN_LINES:
            _request_lines.clear()
        _request_lines[line] = read
    return read


def _headers(lines: list[bytes]) -> dict[str, str]:
    """Read the fields; the first line is the request line."""
    if len(lines) > FIELDS_LIMIT + 1:
        raise HeadTooLargeError(f"the head has more than {FIELDS_LIMIT} fields")
    headers: dict[str, str] = {}
    for number in range(1, len(lines)):
        line = lines[number]
        field = _fields.get(line)
        if field is None:
            field = _field(line)
        name, value = field
        if name in headers:
            if name in _ONCE:
                raise MalformedRequestError(f"the field {name} is there twice")
            value = f"{headers[name]}{'; ' if name == 'cookie' else ', '}{value}"
        headers[name] = value
    return headers


def _field(line: bytes) -> tuple[str, str]:
    """Read one field line: its name in lower case, and its value."""
    match = _FIELD.fullmatch(line)
    if match is None:
        raise MalformedRequestError(_fault(line))
    read = (match[1].decode().lower(), match[2].decode("latin-1").strip(" \t"))
    if read[0] == "host" and _HOST.fullmatch(read[1]) is None:
        raise MalformedRequestError("the Host field is no host")
    if len(line) <= _KNOWN_LENGTH and read[0] not in _FORGOTTEN:
        if len(_fields) >= _KNOWN_LINES:
            _fields.clear()
        _fields[line] = read
    return read


def _persistent(connection: str | None, minor: int) -> bool:
    """RFC 9112 section 9.3, without keep-alive of HTTP/1.0: its clients would have to be told that it was heard."""
    if connection is None or not minor:
        return minor == 1
    return "close" not in (option.strip(" \t") for option in connection.lower().split(","))


def _body_length(headers: dict[str, str], minor: int) -> int | None:
    """RFC 9112 section 6.3, without its second chances."""
    coding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if coding is not None:
        if length is not None:
            raise MalformedRequestError("a request has Content-Length or Transfer-Encoding, not both")
        if not minor:
            raise MalformedRequestError("HTTP/1.0 has no Transfer-Encoding")
        if coding.lower() == "chunked":
            return None
        codings = [name.strip(" \t") for name in coding.lower().split(",")]
        if codings.pop() != "chunked" or "chunked" in codings:
            raise MalformedRequestError("the last transfer coding, and no other, must be chunked")
        raise UnknownTransferCodingError("the only transfer coding that is read is chunked")
    if length is None:
        return 0
    if not (len(length) <= _LENGTH_DIGITS and length.isascii() and length.isdigit()):
        raise MalformedRequestError("Content-Length is no number of bytes")
    return int(length)


def _fault(line: bytes) -> str:
    """What is wrong with a field line, for the person who has to find it."""
    if _NO_TEXT.search(line) is not None or line.endswith(b"\r"):
        return "the head has a control character, or a line that does not end in CR LF"
    if line[:1] in (b" ", b"\t"):
        return "a header field is folded over several lines"
    if b":" not in line:
        return "a header field has no colon"
    return "a header field's name is no token, or a space stands before its colon"
