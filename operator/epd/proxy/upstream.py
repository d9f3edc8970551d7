"""One connection to an engine: answers of HTTP/1.1 on asyncio's callbacks, parsed by httptools.

Opens no connection, keeps none for later and retries nothing (`pool.py` does); `outgoing.py` writes what is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from epd.proxy.answers import EngineAnswer
from epd.proxy.course import Signal
from epd.proxy.framing import begin_of_chunk
from epd.proxy.outgoing import RequestSender
from epd.proxy.transport import Body, Cause, TransportError

HEAD_BYTES: Final = 64 * 1024
"""Bound of the headers of an answer: 16 times what NGINX takes."""
HEADER_SIGNS: Final = 4
"""A colon, a space and the end of the line."""
OVERHEAD_BYTES: Final = 2 * HEAD_BYTES
"""Bound of what comes without a byte of body: interim answers, a head with much white space, trailers."""

_LINE_FEED: Final = ord("\n")
_BODYLESS: Final = frozenset({204, 304})
_NAMES: Final = {
    name.encode(): name for name in ("content-length", "content-type", "date", "server", "transfer-encoding")
}
"""Names as uvicorn, vLLM's server, writes them; to find one takes a third of decoding it."""


class _Stage(Enum):
    HEAD = auto()
    BODY = auto()
    COMPLETE = auto()


# found several times per read, and in Python 3.11 a member is found through its class ten times slower
_HEAD: Final = _Stage.HEAD
_BODY: Final = _Stage.BODY
_COMPLETE: Final = _Stage.COMPLETE


class EngineConnection(asyncio.Protocol):
    """Carries one request at a time.

    `on_free` is called when an answer is complete and the connection can carry another request, `on_lost` once when it
    is gone.
    """

    def __init__(
        self, *, on_free: Callable[[EngineConnection], None], on_lost: Callable[[EngineConnection], None]
    ) -> None:
        self.idle_since = 0.0
        """For the owner's use."""
        self.heard = False
        """Whether anything has come since the last request began."""
        self.fault: Exception | None = None
        """What broke it, once it is broken and if anything did."""
        self._on_free = on_free
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._sender: RequestSender
        self._lost = False
        self._parser = HttpResponseParser(self)
        self._answer: EngineAnswer | None = None
        self._stage: _Stage = _HEAD
        self._between_chunks = False
        """Whether the parser has read all of a chunk and nothing of the next."""
        self._headers: dict[str, str] = {}
        self._bodyless = False
        self._keep = False
        self._parts: list[bytes] = []
        self._head = 0
        self._overhead = 0
        self._paused = False

    @property
    def closed(self) -> bool:
        """Whether no request can be sent any more."""
        return self._lost or self._transport.is_closing()

    def ask(self, head: bytes, body: Body, size: int, *, bodyless: bool = False) -> EngineAnswer:
        """Send a request whose body has `size` bytes. The answer to a `bodyless` one ends with its head (HEAD)."""
        answer = self._answer = EngineAnswer(self, Signal(self._loop))
        self._stage = _HEAD
        self._between_chunks = False
        self._headers = {}
        self._bodyless = bodyless
        self._head = self._overhead = 0
        self.heard = False
        self._sender.send(head, body, size)
        return answer

    def pause(self) -> None:
        """Stop reading."""
        if not self._paused and not self.closed:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._paused and not self.closed:
            self._paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once; nobody hears of the answer any more."""
        self._answer = None
        self._sender.drop()
        if not self._lost:
            self._transport.abort()

    def break_off(self, error: TransportError) -> None:
        """Close at once, and fail the answer."""
        answer = self._answer
        self.abort()
        if answer is not None:
            answer.fail(error)

    # asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin idle."""
        self._transport = cast("asyncio.Transport", transport)
        self._sender = RequestSender(self._transport)

    def data_received(self, data: bytes) -> None:
        """Parse, then hand on what this read brought, all of it at once."""
        answer = self._answer
        if answer is None:
            # nobody has asked: whatever this is, the next answer must not begin with it
            self.abort()
            return
        if self._between_chunks and answer.take_chunk is not None and (start := begin_of_chunk(data)):
            # the parser would end where it is
            answer.take_chunk(data, start)
            return
        self.heard = True
        defect = self._parse(data)
        if data[-1] != _LINE_FEED:
            # part of the next one's size may have come
            self._between_chunks = False
        arrives = self._stage is not _HEAD and not answer.arrived.done()
        if self._parts:
            body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            self._parts.clear()
            self._overhead = 0
            answer.push(body)
        elif self._stage is not _COMPLETE:
            self._overhead += len(data)
        if not self._carries(answer):
            return  # closed by who got the bytes
        if self._stage is _COMPLETE:
            self._finish(answer, reusable=defect is None)
        if arrives:
            # who waits goes on within this call, perhaps with another request over this connection
            answer.arrived.set_result(None)
        if self._carries(answer) and (defect is not None or self._overhead > OVERHEAD_BYTES):
            self.break_off(TransportError(Cause.PROTOCOL, f"no HTTP/1.1: {defect or 'a head without end'}"))

    def eof_received(self) -> None:
        """Take the end of the engine's side for the end of the connection, unsent or not."""
        self._end(None)
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner, and whoever waits for the answer."""
        self._lost = True
        self.fault = exc
        self._on_lost(self)
        self._end(exc)

    def pause_writing(self) -> None:
        """Hold the rest of the body."""
        self._sender.pause()

    def resume_writing(self) -> None:
        """Send more of it."""
        self._sender.resume()

    # httptools calls these

    def on_message_begin(self) -> None:
        """Notice bytes after the end of an answer, which belong to nobody."""
        if self._stage is _COMPLETE:
            self._keep = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header. Trailers are dropped."""
        if self._stage is not _HEAD or self._answer is None:
            return
        self._head += len(name) + len(value) + HEADER_SIGNS
        if self._head > HEAD_BYTES:
            raise ValueError("the head is too large")
        headers, text = self._headers, value.decode("latin-1")
        key = _NAMES.get(name) or name.decode("latin-1").lower()
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        """Keep the status; an interim answer (1xx) is none."""
        if self._stage is not _HEAD or self._answer is None:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self._headers = {}
            return
        self._answer.status = status
        self._answer.headers = self._headers
        self._stage = _COMPLETE if self._bodyless else _BODY
        # the parser takes what follows a HEAD's answer for its body, so it can't go on with another
        self._keep = False

    def on_body(self, data: bytes) -> None:
        """Keep a piece of the body until all of this read is parsed."""
        if self._stage is _BODY:
            self._parts.append(data)

    def on_chunk_header(self) -> None:
        """Note that a chunk has begun."""
        self._between_chunks = False

    def on_chunk_complete(self) -> None:
        """Note that it has ended."""
        self._between_chunks = self._stage is _BODY

    def on_message_complete(self) -> None:
        """Note the end; the parser knows only now whether the connection may be kept."""
        if self._stage is _BODY:
            self._stage = _COMPLETE
            self._keep = self._parser.should_keep_alive()

    # ours

    def _carries(self, answer: EngineAnswer) -> bool:
        """Whether it is still this answer that comes. Asked for by a call, since compiled code takes for granted that
        what was compared once has not become None since."""
        return self._answer is answer

    def _parse(self, data: bytes) -> Exception | None:
        """Parse, and return what is wrong with it."""
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            return error
        return None

    def _finish(self, answer: EngineAnswer, *, reusable: bool) -> None:
        self._answer = None
        if reusable and self._keep and not self._sender.unsent() and not self.closed:
            self.resume()
            self._on_free(self)
        else:
            self.abort()
        answer.complete()

    def _end(self, exc: Exception | None) -> None:
        answer = self._answer
        if answer is None:
            return
        if exc is None and self._stage is _BODY and _ends_with_connection(answer):
            self._finish(answer, reusable=False)
        else:
            error = TransportError(Cause.DISCONNECTED, str(exc or "the engine closed the connection"))
            error.__cause__ = exc
            self.break_off(error)


def _ends_with_connection(answer: EngineAnswer) -> bool:
    """Whether the end of the connection is how the end of this body shows (RFC 9112, 6.3)."""
    if "content-length" in answer.headers or answer.status in _BODYLESS:
        return False
    return not answer.headers.get("transfer-encoding", "").lower().endswith("chunked")
