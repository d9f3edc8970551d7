"""Cuts the bytes of a connection into requests: heads, pieces of bodies, ends.

Reads and keeps state, does no input or output. Never keeps bytes: what it can't read yet stays with its caller.
"""

from __future__ import annotations

from typing import Final, Protocol

from epd.proxy.chunked import ChunkedBody
from epd.proxy.head import END, Head, check_part, parse_head

_BLANK: Final = b"\r\n"
_CR: Final = _BLANK[0]


class Requests(Protocol):
    """Who is told of what was read."""

    def head_read(self, head: Head, *, more: bool) -> None:
        """A request begins; `more` bytes have come behind its head."""

    def body_read(self, piece: bytes) -> None:
        """The next bytes of its body."""

    def body_complete(self) -> None:
        """It is whole."""


class RequestReader:
    """Reads one connection. `in_body` says whether a head was read and its body is not complete.

    `left` is how many bytes of the body are to come; None where only its chunks will tell.
    """

    __slots__ = ("_blank", "_chunked", "_requests", "_scanned", "in_body", "left")

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._scanned = 0
        """Bytes of a part of a head that were found acceptable."""
        self._blank = False
        self._chunked: ChunkedBody | None = None
        self.in_body = False
        self.left: int | None = 0

    def step(self, data: bytes, at: int) -> int:
        """Read on from `at`, and return where the unread begins: at `at` itself if more has to come.

        Raises ProxyError, and then there is no more to be read: nobody knows where the next request begins.
        """
        return self._body(data, at) if self.in_body else self._head(data, at)

    def _head(self, data: bytes, at: int) -> int:
        end = data.find(END, at)
        if data[at] == _CR and data.startswith(_BLANK, at) and not self._blank:
            # RFC 9112 section 2.2: one empty line before a request is ignored
            self._blank = True
            self._scanned = 0
            return at + len(_BLANK)
        if end < 0:
            part = data[at:] if at else data
            check_part(part, self._scanned)
            self._scanned = len(part)
            return at
        # with the line end of the last field, without the empty line
        size = end + len(_BLANK) - at
        head = parse_head(data[at : at + size], size)
        self._scanned = 0
        self._blank = False
        at = end + len(END)
        self.in_body = True
        self.left = head.length
        self._chunked = ChunkedBody() if head.length is None else None
        self._requests.head_read(head, more=at < len(data))
        if head.length == 0:
            self._complete()
        return at

    def _body(self, data: bytes, at: int) -> int:
        if self._chunked is not None:
            at = self._chunked.feed(data, at, self._requests.body_read)
            if self._chunked.complete:
                self._complete()
            return at
        left = self.left or 0
        piece = data if not at and len(data) <= left else data[at : at + left]
        self.left = left - len(piece)
        self._requests.body_read(piece)
        if not self.left:
            self._complete()
        return at + len(piece)

    def _complete(self) -> None:
        self.in_body = False
        self._requests.body_complete()
