"""How replies look on the wire: status line, header block, chunks (RFC 9112).

Pure. Never decides what a reply says or whether the connection stays open.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"
SERVER: Final = "epd-proxy"

_STATUS_LINES: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}
_NO_CONTENT: Final = frozenset({204, 304})
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
"""Without an extension, as servers write it."""
_PRINTABLE: Final = "".join(map(chr, range(0x20, 0x7F)))


def reply_head(status: int, headers: Mapping[str, str], *, length: int | None, chunked: bool, close: bool) -> bytes:
    """Write the head of a reply whose body has `length` bytes, or comes in chunks, or ends with the connection."""
    values = "".join(headers.values())
    if not (values.isascii() and values.isprintable()):
        # engines name identifiers, and those stand in headers: no CR LF of theirs may begin a field of its own
        headers = {name: quote(value, safe=_PRINTABLE, errors="replace") for name, value in headers.items()}
    parts = [_STATUS_LINES.get(status) or f"HTTP/1.1 {status} \r\n"]
    for name, value in headers.items():
        parts += (name, ": ", value, "\r\n")
    if chunked:
        parts.append("transfer-encoding: chunked\r\n")
    elif length is not None and status not in _NO_CONTENT:
        parts.append(f"content-length: {length}\r\n")
    parts.append(_common(int(time.time())))
    parts.append("connection: close\r\n\r\n" if close else "\r\n")
    return "".join(parts).encode("ascii")


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


@lru_cache(maxsize=1)
def _common(seconds: int) -> str:
    """`Date` is demanded of a server with a clock (RFC 9110 section 6.6.1), and changes once a second."""
    return f"date: {formatdate(seconds, usegmt=True)}\r\nserver: {SERVER}\r\n"
