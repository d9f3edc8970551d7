"""Sends replies to one client: whole ones, and streams as their events come.

One write per event and nothing else. Never decides which reply is sent or what comes after it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Callable
from typing import Final

from epd.proxy.framing import CONTINUE, LAST_CHUNK, chunk, reply_head
from epd.proxy.transport import Reply, ReplyStream, TransportError

log = logging.getLogger(__name__)

COPY_LIMIT: Final = 64 << 10
"""Bytes of a body up to which it is joined with its head: one copy is cheaper than a second system call."""
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER without time: closing resets the connection (socket(7))."""
_COMMENT: Final = chunk(b":\n\n")
"""A line of an event stream that clients skip (WHATWG HTML section 9.2.6)."""


class ReplySender:
    """Sends one reply after the other; is the Sink of their streams. `on_sent` is called after each that is complete.

    A reply counts as sent when the client's socket has taken it, but for what the transport may buffer. `writable` says
    whether that has room.
    """

    __slots__ = (
        *("_chunked", "_finishing", "_on_sent", "_prefix", "_stream", "_transport"),
        *("broken", "streamed", "writable"),
    )

    def __init__(self, transport: asyncio.Transport, on_sent: Callable[[], None]) -> None:
        self._transport = transport
        self._on_sent = on_sent
        self._stream: ReplyStream | None = None
        self._prefix = b""
        """A head that waits for the first bytes of its stream, to be sent with them."""
        self._chunked = False
        self.writable = True
        self._finishing = False
        self.broken = False
        """Whether a stream broke off."""
        self.streamed = 0
        """Bytes of streams, without what frames them; for the owner to set back."""

    def refuse(self, reply: Reply, *, bodiless: bool, close: bool) -> None:
        """Send a reply to a request that may not be complete; nobody is told when it is sent."""
        body = reply.body
        head = reply_head(reply.status, reply.headers, length=len(body), chunked=False, close=close)
        if bodiless or not body:
            self._transport.write(head)
        elif len(body) <= COPY_LIMIT:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))

    def send(self, reply: Reply, *, bodiless: bool, chunked: bool, close: bool) -> None:
        """Send a reply; its stream in chunks or up to the end of the connection."""
        stream = reply.stream
        if stream is None:
            self.refuse(reply, bodiless=bodiless, close=close)
            self._finish()
            return
        self._stream = stream
        self._chunked = chunked
        self._prefix = reply_head(reply.status, reply.headers, length=None, chunked=chunked, close=close)
        if bodiless:
            self._flush_prefix()
            # its place is not kept for what nobody is going to read
            self.let_go()
            self._finish()
            return
        stream.relay(self)
        if self._prefix:
            self._flush_prefix()

    def write(self, data: bytes) -> None:
        """Send the next bytes of the stream."""
        self.streamed += len(data)
        framed = chunk(data) if self._chunked else data
        if self._prefix:
            framed, self._prefix = self._prefix + framed, b""
        self._transport.write(framed)

    def write_chunk(self, framed: bytes, start: int) -> None:
        """Send the next bytes of the stream, which came as a chunk: as they are, if they may."""
        if self._chunked and not self._prefix:
            self.streamed += len(framed) - start - len(b"\r\n")
            self._transport.write(framed)
        else:
            self.write(framed[start:-2])

    def end(self) -> None:
        """The stream is complete."""
        self._flush_prefix(LAST_CHUNK if self._chunked else b"")
        self._finish()

    def fail(self, error: TransportError) -> None:
        """The stream broke off: end without the last chunk, so that no client takes it for whole."""
        log.debug("a stream broke: %s", error)
        self.broken = True
        self.let_go()
        self._flush_prefix()
        if self._chunked:
            self._transport.close()
        else:
            # to a client of HTTP/1.0 an orderly end of the connection is the end of the stream
            sock = self._transport.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()

    def pause(self) -> None:
        """The client reads slower than it is sent to."""
        self.writable = False
        if self._stream is not None:
            self._stream.pause()

    def resume(self) -> None:
        """The client has read most of what it was sent."""
        self.writable = True
        if self._finishing:
            self._sent()
        elif self._stream is not None:
            self._stream.resume()

    def probe(self, *, interim: bool) -> None:
        """Send what means nothing to a client, which one that is gone answers with a reset."""
        if self._stream is not None:
            if self._chunked and self.writable:
                self._transport.write(_COMMENT)
        elif interim and not self._finishing:
            self._transport.write(CONTINUE)

    def let_go(self) -> None:
        """Close the stream, if there is one."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _flush_prefix(self, more: bytes = b"") -> None:
        data, self._prefix = self._prefix + more, b""
        if data:
            self._transport.write(data)

    def _finish(self) -> None:
        if self.writable:
            self._sent()
        else:
            self._finishing = True

    def _sent(self) -> None:
        self._finishing = False
        self.let_go()
        self._on_sent()
