"""One client's connection: requests in, replies out, in order, by the callbacks of asyncio.Protocol.

Owns order: takes one request at a time, when the last one is done with and the client reads its replies. Never knows
what a request means: that is the `Handler`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, cast

from epd.proxy.closing import Closing
from epd.proxy.errors import ProxyError
from epd.proxy.handler import Handler
from epd.proxy.head import Head
from epd.proxy.inflow import Inflow
from epd.proxy.patience import GRACE_SECONDS, Patience, last_refusal_due, late_body, late_head
from epd.proxy.probing import Probing
from epd.proxy.reader import RequestReader
from epd.proxy.sending import ReplySender
from epd.proxy.serving import Serving


class _Stage(Enum):
    READING = auto()
    BUSY = auto()
    """A request is whole and its reply not sent."""
    LINGERING = auto()
    """The last reply is sent; what still comes is dropped."""
    CLOSED = auto()


# found several times per request, and in Python 3.11 a member is found through its class ten times slower
_READING: Final = _Stage.READING
_BUSY: Final = _Stage.BUSY
_LINGERING: Final = _Stage.LINGERING
_CLOSED: Final = _Stage.CLOSED


class Connection(asyncio.Protocol):
    """One connection. `on_made` is told when it is there, `on_lost` when it is gone.

    A factory's protocol may never be either: if a TLS handshake fails, event loops just forget it.
    """

    __slots__ = (
        *("_closing", "_consuming", "_eof", "_handler", "_inflow", "_on_lost", "_on_made", "_patience", "_probing"),
        *("_reader", "_sender", "_serving", "_stage", "_transport"),
    )
    _transport: asyncio.Transport
    _inflow: Inflow
    _sender: ReplySender
    _serving: Serving

    def __init__(
        self, handler: Handler, *, on_made: Callable[[Connection], None], on_lost: Callable[[Connection], None]
    ) -> None:
        self._handler = handler
        self._on_made = on_made
        self._on_lost = on_lost
        self._reader = RequestReader(self)
        self._stage: _Stage = _READING
        self._consuming = self._eof = False
        self._closing: Closing | None = None
        self._probing: Probing | None = None
        self._patience = Patience(asyncio.get_running_loop(), self._look)

    @property
    def unread(self) -> bool:
        """Whether part of a reply waits for its client to read."""
        if self._closing is not None:
            return self._closing.unread
        return self._transport.get_write_buffer_size() > 0

    @property
    def idle_since(self) -> float | None:
        """Since when it waits for a request, or for the rest of a head, by the monotonic clock; None where one has come
        or a reply is unread."""
        if self._stage is not _READING or self._reader.in_body or not self._sender.writable:
            return None
        # from the last reply on, or from a head's first byte, and nothing but a whole head changes what is waited for
        return self._patience.awaits_since(begun=bool(self._inflow.rest))

    def make_room(self) -> None:
        """Close, if no whole head has come."""
        if self._idle:
            self._transport.close()
        elif self.idle_since is not None:
            self.abort()

    def close_idle(self) -> None:
        """Close, if no request has begun; a request that has gets its reply first."""
        if self._idle:
            self._transport.close()

    def turn_away(self, error: ProxyError) -> None:
        """Answer with `error` before there is a request, and close."""
        self._refuse(error, in_step=False)

    @property
    def _idle(self) -> bool:
        return self._stage is _READING and not self._reader.in_body and not self._inflow.rest

    def abort(self) -> None:
        """Break off."""
        self._serving.abort()

    # callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        # uvloop's are none by inheritance
        self._transport = cast(asyncio.Transport, transport)
        self._inflow = Inflow(self._transport)
        self._sender = ReplySender(self._transport, self._sent)
        self._serving = Serving(self._handler, sender=self._sender, patience=self._patience, transport=self._transport)
        self._patience.await_request()
        self._on_made(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - who broke off is known by other means
        """The connection is gone."""
        self._stage = _CLOSED
        self._patience.cancel()
        if self._probing is not None:
            self._probing.cancel()
        self._inflow.rest = b""
        self._serving.lost()
        self._on_lost(self)

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self._stage is _READING:
            self._consume(self._inflow.rest + data)
        elif self._stage is _BUSY:
            self._inflow.keep(data)
        elif self._closing is not None:
            self._closing.drop(len(data))

    def eof_received(self) -> bool:
        """The client sends no more. Says whether to keep the other direction, for a reply that is on its way."""
        self._eof = True
        if self._stage is not _BUSY or self._transport.get_extra_info("sslcontext") is not None:
            # without all of its request there is nothing to answer; and TLS has no half-closed connections in asyncio
            return False
        self._probing = Probing(asyncio.get_running_loop(), self._probe)
        return True

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        self._sender.pause()

    def resume_writing(self) -> None:
        """The transport's buffer is all but empty."""
        self._sender.resume()
        if self._stage is _READING and self._inflow.held and not self._consuming:
            if not self._reader.in_body:
                self._patience.await_request()
            self._go_on()

    # requests

    def _consume(self, data: bytes) -> None:
        """Read `data`, which begins where the last call stopped, as far as requests can be taken now: one at a time,
        and none while the client leaves refusals unread, which wait for nobody."""
        self._consuming = True
        at = 0
        while at < len(data) and self._stage is _READING and self._sender.writable:
            try:
                after = self._reader.step(data, at)
            except ProxyError as error:
                self._refuse(error, in_step=False)
                break
            if after == at:
                # part of a head, or of the size of a chunk
                if not self._reader.in_body:
                    self._patience.await_head()
                break
            at = after
        self._consuming = False
        self._inflow.rest = data[at:] if self._stage is _READING or self._stage is _BUSY else b""
        if self._stage is _READING and not self._sender.writable and not self._inflow.held:
            self._inflow.hold()
            self._patience.await_reader()

    def head_read(self, head: Head, *, more: bool) -> None:
        """A request begins."""
        try:
            self._serving.begin(head, more=more)
        except ProxyError as error:
            self._refuse(error)

    def body_read(self, piece: bytes) -> None:
        """Part of its body has come."""
        try:
            self._serving.feed(piece, last=self._reader.left == 0)
        except ProxyError as error:
            self._refuse(error)

    def body_complete(self) -> None:
        """It is whole: have it answered, unless it was refused."""
        if self._stage is not _READING:
            return
        turn = self._serving.turn
        if turn is None:
            self._next()
        else:
            self._stage = _BUSY
            self._serving.answer(turn)

    def _refuse(self, error: ProxyError, *, in_step: bool = True) -> None:
        """Answer before the request is whole. `in_step`: it is known where the next one begins."""
        left = self._reader.left if in_step else None
        self._serving.refuse(error, left=left)
        if self._serving.closes:
            self._linger(whole=left == 0, until=last_refusal_due())
        else:
            self._patience.await_refused()

    def _sent(self) -> None:
        """The reply is out."""
        self._serving.end(left=False)
        if self._serving.closes:
            # the client has as long to read the rest as it had to read all
            self._linger(whole=True, until=self._patience.due + GRACE_SECONDS)
        else:
            self._next()

    def _next(self) -> None:
        """Turn to the next request, which may be there already."""
        self._stage = _READING
        self._patience.await_request()
        # the loop that called goes on by itself
        if not self._consuming:
            self._go_on()

    def _go_on(self) -> None:
        """Take what waits, and read the socket if there is room for more."""
        if self._inflow.rest:
            self._consume(self._inflow.rest)
        if self._stage is _READING:
            if not self._sender.writable:
                return
            if self._eof:
                self._transport.close()
            else:
                self._inflow.read_on()
        elif self._stage is _BUSY and self._inflow.has_room():
            # a client that leaves is noticed by reading alone
            self._inflow.read_on()

    def _linger(self, *, whole: bool, until: float) -> None:
        """Close once the client has read the reply. `whole`: its request was; `until`: when it has to have read it."""
        self._stage = _LINGERING
        self._inflow.rest = b""
        self._closing = Closing(self._transport, until=until)
        due = self._closing.begin(whole=whole, eof=self._eof)
        if due is not None and self._stage is _LINGERING:
            self._patience.set(due)
            self._inflow.read_on()

    # time

    def _look(self, now: float) -> None:
        """What was due has not come."""
        turn = self._serving.turn
        if self._closing is not None:
            due = self._closing.look(now)
            if due is not None:
                self._patience.set(due)
        elif self._stage is _BUSY and turn is not None:
            self._serving.look(turn, now)
        elif not self._sender.writable or (self._reader.in_body and turn is None):
            # a client that does not read, or send what it announced, must not keep its place for ever
            self.abort()
        elif turn is not None:
            self._refuse(late_body(now, turn.deadline), in_step=False)
        elif self._inflow.rest:
            self._refuse(late_head(), in_step=False)
        else:
            self._transport.close()

    def _probe(self) -> bool:
        """Probe a client that sends no more, as long as it is owed a reply."""
        return self._stage is _BUSY and self._serving.probe()
