"""Reads the chunked transfer coding of a request's body (RFC 9112 section 7.1).

Pure, and strict: sizes are hex digits alone, lines end in CR LF, extensions and trailers are checked, bounded and
dropped. Never joins or keeps the body's bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from epd.proxy.errors import MalformedRequestError

LINE_LIMIT: Final = 256
"""Bytes of a chunk's size with its extensions; no extension is in use, and readers that skip them were attacked."""
TRAILER_LIMIT: Final = 4096
"""Bytes of a trailer section, which is dropped: a checksum or two."""
OVERHEAD_LIMIT: Final = 16 << 10
"""Bytes of framing beyond what chunks of ordinary size need (as in Go's net/http): many tiny chunks with extensions
would cost more than the body's limit shows."""
_FREE_LINE: Final = 16

_TEXT: Final = rb"[\t\x20-\x7e\x80-\xff]"
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;" + _TEXT + rb"*)?\r\n")
"""15 digits are below 2^63."""
_TRAILER: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:" + _TEXT + rb"*\r\n")


class ChunkedBody:
    """One body. `complete` once its last byte was read."""

    __slots__ = ("_in_trailer", "_left", "_line", "_line_end", "_overhead", "_trailer", "complete")

    def __init__(self) -> None:
        self.complete = False
        self._left = 0
        """Bytes of the current chunk that have not come."""
        self._line_end = False
        """Whether the CR LF behind a chunk's data is due."""
        self._in_trailer = False
        self._line = b""
        """Part of a line whose end has not come."""
        self._trailer = 0
        self._overhead = 0

    def feed(self, data: bytes, at: int, take: Callable[[bytes], None]) -> int:
        """Read `data` from `at` on, give what it has of the body to `take`, and return where it stopped.

        Raises MalformedRequestError, and whatever `take` raises.
        """
        end = len(data)
        while at < end and not self.complete:
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                self._line_end = not self._left
                take(piece)
            else:
                at = self._read_line(data, at)
        return at

    def _read_line(self, data: bytes, at: int) -> int:
        stop = data.find(b"\n", at) + 1
        line = self._line + data[at : stop or len(data)]
        self._check(line)
        if not stop:
            self._line = line
            return len(data)
        self._line = b""
        if self._line_end:
            self._line_end = False
        elif self._in_trailer:
            self._end_or_trailer(line)
        else:
            self._size(line)
        return stop

    def _check(self, line: bytes) -> None:
        """Refuse a line, or what has come of it, as early as it can't be right any more."""
        whole = line.endswith(b"\n")
        if b"\r" in line[: -2 if whole else -1] or (whole and not line.endswith(b"\r\n")):
            raise MalformedRequestError("a line of the chunked coding does not end in CR LF")
        if self._line_end and not b"\r\n".startswith(line):
            raise MalformedRequestError("a chunk is longer than its size")
        limit = TRAILER_LIMIT if self._in_trailer else LINE_LIMIT
        if len(line) > limit:
            raise MalformedRequestError(f"a line of the chunked coding is longer than {limit} bytes")

    def _size(self, line: bytes) -> None:
        match = _SIZE.fullmatch(line)
        if match is None:
            raise MalformedRequestError("a chunk's size is no hex number")
        self._left = int(match[1], 16)
        self._in_trailer = not self._left
        # each chunk's data pays for its own size line, as far as that is no longer than needed
        self._overhead = max(0, self._overhead + len(line) - _FREE_LINE - 2 * self._left)
        if self._overhead > OVERHEAD_LIMIT:
            raise MalformedRequestError("the chunked coding takes more bytes than the body")

    def _end_or_trailer(self, line: bytes) -> None:
        if line == b"\r\n":
            self.complete = True
            return
        self._trailer += len(line)
        if self._trailer > TRAILER_LIMIT:
            raise MalformedRequestError(f"the trailer section is larger than {TRAILER_LIMIT} bytes")
        if _TRAILER.fullmatch(line) is None:
            raise MalformedRequestError("a trailer field is malformed")
