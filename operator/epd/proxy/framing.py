"""How heads and chunks look on the wire, of replies to clients and of calls to engines (RFC 9112).

Pure. Never decides what a reply says or whether the connection stays open.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from epd.proxy.transport import Call

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"
SERVER: Final = "epd-proxy"

_STATUS_LINES: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}
_NO_CONTENT: Final = frozenset({204, 304})
_BODYLESS: Final = frozenset({"GET", "HEAD"})
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
"""Without an extension, as servers write it."""
_PRINTABLE: Final = "".join(map(chr, range(0x20, 0x7F)))
_KNOWN_LINES: Final = 1024
"""Lines of headers that are remembered: replies have the same ones again and again, but for those of one request alone.
When there are as many, all are forgotten."""
_KNOWN_LENGTH: Final = 128
"""Characters of the longest value of them: of names of pods and of media types."""
_OWN: Final = frozenset({"x-request-id", "x-epd-items"})
"""Fields of which each reply has a value of its own, and whose signs were looked at where they come from (`server.py`,
`primed.py`)."""
_lines: Final[dict[tuple[str, str], str]] = {}


def reply_head(status: int, headers: Mapping[str, str], *, length: int | None, chunked: bool, close: bool) -> bytes:
    """Write the head of a reply whose body has `length` bytes, or comes in chunks, or ends with the connection."""
    parts = [_STATUS_LINES.get(status) or f"HTTP/1.1 {status} \r\n"]
    for name, value in headers.items():
        if name in _OWN:
            parts.append(f"{name}: {value}\r\n")
        else:
            parts.append(_lines.get((name, value)) or _line(name, value))
    if chunked:
        parts.append("transfer-encoding: chunked\r\n")
    elif length is not None and status not in _NO_CONTENT:
        parts.append(f"content-length: {length}\r\n")
    parts.append(_common.at(int(time.time())))
    parts.append("connection: close\r\n\r\n" if close else "\r\n")
    return "".join(parts).encode("ascii")


def call_head(call: Call, fixed: str, size: int) -> bytes:
    """Write the head of a call whose body has `size` bytes; `fixed` are lines that all to its engine have.

    Raises ValueError where a value or the path would end its line.
    """
    method, path = call.method, call.path
    safe = not (" " in path or _ends_line(path))
    pieces = [method, " ", path, " HTTP/1.1\r\n", fixed]
    for name, value in call.headers.items():
        safe = safe and not (_ends_line(value) or _ends_line(name))
        pieces.append(name)
        pieces.append(": ")
        pieces.append(value)
        pieces.append("\r\n")
    if not safe:
        raise ValueError("a header or path has characters that HTTP has no room for")
    pieces.append(f"content-length: {size}\r\n\r\n" if size or method not in _BODYLESS else "\r\n")
    return "".join(pieces).encode("latin-1")


def chunk(data: bytes) -> bytes:
    """Write `data`, which is not empty, as one chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def begin_of_chunk(data: bytes) -> int:
    """Where the content begins, if `data` is one whole chunk with content and nothing else; else 0."""
    size = _CHUNK_SIZE.match(data)
    if size is None or data[-2:] != b"\r\n":
        return 0
    start = size.end()
    return start if 0 < len(data) - start - 2 == int(size[1], 16) else 0


def _ends_line(text: str) -> bool:
    """Whether a line of a head would not go on behind `text` for every reader."""
    return "\n" in text or "\r" in text or "\0" in text


def _line(name: str, value: str) -> str:
    if not (value.isascii() and value.isprintable()):
        # engines name identifiers, and those stand in headers: no CR LF of theirs may begin a field of its own
        value = quote(value, safe=_PRINTABLE, errors="replace")
    line = f"{name}: {value}\r\n"
    if len(value) <= _KNOWN_LENGTH:
        if len(_lines) >= _KNOWN_LINES:
            _lines.clear()
        _lines[name, value] = line
    return line


class _Common:
    """The fields of all replies. `Date` is demanded of a server with a clock (RFC 9110 section 6.6.1)."""

    __slots__ = ("_seconds", "_text")

    def __init__(self) -> None:
        self._seconds = -1
        self._text = ""

    def at(self, seconds: int) -> str:
        """The fields at a time in seconds since the epoch; they are written anew when it is another one."""
        if seconds != self._seconds:
            self._seconds = seconds
            self._text = f"date: {formatdate(seconds, usegmt=True)}\r\nserver: {SERVER}\r\n"
        return self._text


_common: Final = _Common()
