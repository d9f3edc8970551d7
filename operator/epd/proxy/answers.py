"""An engine's answer while it comes: kept until somebody takes it, then read or relayed.

Knows nothing of HTTP; `upstream.py` does.
"""

from __future__ import annotations

from typing import Final, Protocol

from epd.proxy.course import Signal
from epd.proxy.transport import Answer, Cause, Sink, TakeChunk, TransportError

WAITING_BYTES: Final = 256 * 1024
"""How much of an answer waits in memory for somebody to take it, before the connection is paused: one read's worth."""


class Carrier(Protocol):
    """The connection that an answer comes over."""

    def pause(self) -> None:
        """Stop reading."""

    def resume(self) -> None:
        """Read on."""

    def abort(self) -> None:
        """Close at once."""


class EngineAnswer(Answer):
    """An answer over one connection. Its connection calls `push`, then `complete` or `fail`; the rest is `Answer`."""

    __slots__ = (
        "_closed",
        "_connection",
        "_error",
        "_held_back",
        "_parts",
        "_reader",
        "_sink",
        "_size",
        "arrived",
        "take_chunk",
    )

    def __init__(self, connection: Carrier, arrived: Signal) -> None:
        self.status = 0
        self.headers = {}
        self.arrived = arrived
        """Done when the head is there; fails with TransportError."""
        self._connection: Carrier | None = connection
        self._parts: list[bytes] = []
        self._size = 0
        self._held_back = False
        self._sink: Sink | None = None
        self._reader: Signal | None = None
        self._error: TransportError | None = None
        self._closed = False
        self.take_chunk: TakeChunk | None = None
        """Who takes what comes as one whole chunk, where the sink can."""

    async def read(self) -> bytes:
        """Read the whole body."""
        if self._error is not None:
            raise self._error
        if self._connection is not None:
            self._reader = Signal(self.arrived.get_loop())
            self._let_go()
            await self._reader
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    def relay(self, sink: Sink) -> None:
        """Push what has come and all that comes into `sink`."""
        self._sink = sink
        self.take_chunk = getattr(sink, "write_chunk", None)
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            sink.write(data)
        if self._closed:
            return
        if self._connection is not None:
            self._let_go()
        elif self._error is not None:
            sink.fail(self._error)
        else:
            sink.end()

    def pause(self) -> None:
        """Read no more for now."""
        self._held_back = False
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        """Read on."""
        self._held_back = False
        if self._connection is not None:
            self._connection.resume()

    def close(self) -> None:
        """Break the connection unless the answer is complete."""
        self._closed = True
        self._sink = self.take_chunk = None
        if self._connection is not None:
            self._connection.abort()
            self.fail(TransportError(Cause.DISCONNECTED, "the answer was closed before it was complete"))

    def push(self, data: bytes) -> None:
        """Pass on or keep the next bytes of the body."""
        if self._sink is not None:
            self._sink.write(data)
            return
        self._parts.append(data)
        self._size += len(data)
        if self._size > WAITING_BYTES and self._reader is None:
            self.pause()
            self._held_back = True

    def complete(self) -> None:
        """The body has come to its end."""
        self._connection = None
        if self._sink is not None:
            self._sink.end()
        elif self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def fail(self, error: TransportError) -> None:
        """The answer will never be complete."""
        self._connection = None
        self._error = error
        if not self.arrived.done():
            self.arrived.set_exception(error)
        elif self._sink is not None:
            self._sink.fail(error)
        elif self._reader is not None and not self._reader.done():
            self._reader.set_exception(error)

    def _let_go(self) -> None:
        """Read on, if it was our own bound that paused the connection."""
        if self._held_back:
            self.resume()
