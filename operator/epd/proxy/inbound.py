"""One client's connection: requests in, replies out, in order, by the callbacks of asyncio.Protocol.

Owns order, flow control and time. Never knows what a request means: that is the `Handler`'s.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, cast

from epd.proxy.alarm import Alarm
from epd.proxy.closing import Closing
from epd.proxy.course import Course
from epd.proxy.errors import ProxyError, RequestTimeoutError, SlowRequestError
from epd.proxy.framing import CONTINUE
from epd.proxy.handler import Handler, Turn
from epd.proxy.head import Head
from epd.proxy.reader import RequestReader
from epd.proxy.sending import ReplySender
from epd.proxy.transport import Reply

log = logging.getLogger(__name__)

IDLE_SECONDS: Final = 75.0
"""How long a connection may be silent between requests: NGINX's default, and above the 60 s after which load balancers
in front (AWS ALB, ingress-nginx) let go of theirs, so that it is they who close."""
HEAD_SECONDS: Final = 10.0
"""How long a head may take from its first byte; it fits into a few packets."""
BODY_SECONDS: Final = 30.0
"""How long a body, or a client that does not read refusals, may stand still: a peer that has lost packets is back
before (RFC 6298 doubles from 1 s)."""
GRACE_SECONDS: Final = 1.0
"""What is left to send an answer that came at the last moment, or the refusal that the time is over."""
READ_AHEAD: Final = 64 << 10
"""Bytes of later requests that wait while one is answered; beyond it the client's socket is not read."""
SWALLOW_LIMIT: Final = 64 << 10
"""Bytes of a refused request's body that are read and dropped so that the connection can be used again."""
SWALLOW_SECONDS: Final = 5.0
"""How long that may take."""
PROBE_SECONDS: Final = 0.1
"""First pause between probes of a half-closed client; each is twice as long as the last, up to 100 times this one."""


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
        *(
            "_alarm",
            "_close",
            "_closing",
            "_consuming",
            "_course",
            "_eof",
            "_expects",
            "_handler",
            "_late",
            "_loop",
            "_on_lost",
            "_on_made",
        ),
        *("_paused", "_probe", "_quit", "_reader", "_rest", "_sender", "_stage", "_transport", "_turn"),
    )
    _transport: asyncio.Transport
    _sender: ReplySender

    def __init__(
        self, handler: Handler, *, on_made: Callable[[Connection], None], on_lost: Callable[[Connection], None]
    ) -> None:
        self._handler = handler
        self._on_made = on_made
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._reader = RequestReader(self)
        self._stage: _Stage = _READING
        self._rest = b""
        """What has come and is not taken: part of a head, or requests that wait."""
        self._consuming = self._paused = self._eof = self._close = self._expects = False
        self._closing: Closing | None = None
        self._turn: Turn | None = None
        self._course: Course[Reply] | None = None
        """What makes the reply to the turn, while it does."""
        self._late = False
        """Whether the turn's time is over."""
        self._quit = False
        """Whether it was this side that broke off."""
        self._alarm = Alarm(self._loop, self._look)
        """Its `due` is when to look what has become of the connection."""
        self._probe: asyncio.TimerHandle | None = None

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
        # the alarm is set from the last reply on, or from a head's first byte, and nothing but a whole head moves it
        return self._alarm.due - (HEAD_SECONDS if self._rest else IDLE_SECONDS)

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
        return self._stage is _READING and not self._reader.in_body and not self._rest

    def abort(self) -> None:
        """Break off."""
        self._quit = True
        self._transport.abort()

    # callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        # uvloop's are none by inheritance
        self._transport = cast(asyncio.Transport, transport)
        self._sender = ReplySender(self._transport, self._sent)
        self._alarm.set(time.monotonic() + IDLE_SECONDS)
        self._on_made(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - who broke off is known by other means
        """The connection is gone."""
        self._stage = _CLOSED
        self._alarm.cancel()
        if self._probe is not None:
            self._probe.cancel()
        self._rest = b""
        if self._course is not None:
            # the turn ends when it has let go of everything
            self._course.cancel()
        else:
            self._sender.let_go()
            self._end_turn(left=not (self._quit or self._sender.broken))
        self._on_lost(self)

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self._stage is _READING:
            self._consume(self._rest + data)
        elif self._stage is _BUSY:
            self._rest += data
            if len(self._rest) > READ_AHEAD:
                self._hold()
        elif self._closing is not None:
            self._closing.drop(len(data))

    def eof_received(self) -> bool:
        """The client sends no more. Says whether to keep the other direction, for a reply that is on its way."""
        self._eof = True
        if self._stage is not _BUSY or self._transport.get_extra_info("sslcontext") is not None:
            # without all of its request there is nothing to answer; and TLS has no half-closed connections in asyncio
            return False
        self._ask_whether_it_listens(PROBE_SECONDS)
        return True

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        self._sender.pause()

    def resume_writing(self) -> None:
        """The transport's buffer is all but empty."""
        self._sender.resume()
        if self._stage is _READING and self._paused and not self._consuming:
            if not self._reader.in_body:
                self._alarm.set(time.monotonic() + IDLE_SECONDS)
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
                self._head_goes_on()
                break
            at = after
        self._consuming = False
        self._rest = data[at:] if self._stage is _READING or self._stage is _BUSY else b""
        if self._stage is _READING and not self._sender.writable and not self._paused:
            self._hold()
            self._alarm.set(time.monotonic() + BODY_SECONDS)

    def head_read(self, head: Head, *, more: bool) -> None:
        """A request begins."""
        turn = self._turn = self._handler.turn(head)
        # RFC 9110 section 10.1.1: a client that sends the body already needs no word
        self._expects = head.expects and not more
        try:
            turn.begin()
        except ProxyError as error:
            self._refuse(error)
            return
        if head.length != 0 and not (more and head.length):
            # else the first of it is read at once, and says how long the rest may take
            self._alarm.set(min(turn.deadline, time.monotonic() + BODY_SECONDS))
            if self._expects:
                self._expects = False
                self._transport.write(CONTINUE)

    def body_read(self, piece: bytes) -> None:
        """Part of its body has come."""
        turn = self._turn
        if turn is None:
            # refused already: what follows is only dropped
            return
        try:
            turn.feed(piece)
        except ProxyError as error:
            self._refuse(error)
            return
        if self._reader.left != 0:
            self._alarm.set(min(turn.deadline, time.monotonic() + BODY_SECONDS))

    def body_complete(self) -> None:
        """It is whole: have it answered, unless it was refused."""
        if self._stage is not _READING:
            return
        if self._turn is None:
            self._next()
            return
        self._stage = _BUSY
        self._alarm.set(self._turn.deadline)
        self._course = Course(self._turn.answer(), self._answered)
        self._course.begin()

    def _head_goes_on(self) -> None:
        due = time.monotonic() + HEAD_SECONDS
        # from its first byte, so what comes later moves nothing
        if not self._reader.in_body and due < self._alarm.due:
            self._alarm.set(due)

    def _answered(self, reply: Reply | None, error: BaseException | None) -> None:
        """The turn's answer is there, or its course was cancelled."""
        self._course = None
        turn = self._turn
        if turn is None or self._stage is not _BUSY:
            # the client left while the reply was on its way here
            if reply is not None and reply.stream is not None:
                reply.stream.close()
            self._end_turn(left=not self._quit)
            return
        late, self._late = self._late, False
        if late and isinstance(error, asyncio.CancelledError):
            reply = turn.refuse(RequestTimeoutError())
        try:
            if reply is None:
                raise error or TypeError("no reply")
            self._close = self._closes(turn)
            # HTTP/1.0 has no chunks: its streams end with the connection, which never persists
            self._sender.send(
                reply, bodiless=turn.head.method == "HEAD", chunked=turn.head.minor == 1, close=self._close
            )
        except asyncio.CancelledError:
            self.abort()
        except Exception:
            log.exception("a reply could not be sent")
            self.abort()

    def _refuse(self, error: ProxyError, *, in_step: bool = True) -> None:
        """Answer before the request is whole. `in_step`: it is known where the next one begins."""
        turn, left = self._turn, self._reader.left
        reply = self._handler.refuse(error) if turn is None else turn.refuse(error)
        swallows = in_step and left is not None and left <= SWALLOW_LIMIT and not self._expects
        self._close = turn is None or not swallows or self._closes(turn)
        self._sender.refuse(reply, bodiless=turn is not None and turn.head.method == "HEAD", close=self._close)
        self._end_turn(left=False)
        if self._close:
            self._linger(whole=in_step and left == 0, until=time.monotonic() + BODY_SECONDS)
        else:
            self._alarm.set(time.monotonic() + SWALLOW_SECONDS)

    def _closes(self, turn: Turn) -> bool:
        return not turn.head.persistent or self._handler.draining

    def _sent(self) -> None:
        """The reply is out."""
        self._end_turn(left=False)
        if self._close:
            # the client has as long to read the rest as it had to read all
            self._linger(whole=True, until=self._alarm.due + GRACE_SECONDS)
        else:
            self._next()

    def _end_turn(self, *, left: bool) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            sender = self._sender
            streamed, sender.streamed = sender.streamed, 0
            turn.end(left=left, broken=self._quit or sender.broken, streamed=streamed)

    def _next(self) -> None:
        """Turn to the next request, which may be there already."""
        self._stage = _READING
        self._alarm.set(time.monotonic() + IDLE_SECONDS)
        # the loop that called goes on by itself
        if not self._consuming:
            self._go_on()

    def _go_on(self) -> None:
        """Take what waits, and read the socket if there is room for more."""
        if self._rest:
            self._consume(self._rest)
        if self._stage is _READING:
            if not self._sender.writable:
                return
            if self._eof:
                self._transport.close()
            else:
                self._read_on()
        elif self._stage is _BUSY and len(self._rest) <= READ_AHEAD:
            # a client that leaves is noticed by reading alone
            self._read_on()

    def _linger(self, *, whole: bool, until: float) -> None:
        """Close once the client has read the reply. `whole`: its request was; `until`: when it has to have read it."""
        self._stage = _LINGERING
        self._rest = b""
        self._closing = Closing(self._transport, until=until)
        due = self._closing.begin(whole=whole, eof=self._eof)
        if due is not None and self._stage is _LINGERING:
            self._alarm.set(due)
            self._read_on()

    def _hold(self) -> None:
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def _read_on(self) -> None:
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    # time

    def _look(self, now: float) -> None:
        """What was due has not come."""
        turn = self._turn
        if self._closing is not None:
            due = self._closing.look(now)
            if due is not None:
                self._alarm.set(due)
        elif self._stage is _BUSY and turn is not None:
            self._look_at_reply(turn, now)
        elif not self._sender.writable or (self._reader.in_body and turn is None):
            # a client that does not read, or send what it announced, must not keep its place for ever
            self.abort()
        elif turn is not None and now < turn.deadline:
            self._refuse(SlowRequestError(f"no byte of the body came for {BODY_SECONDS:g} s"), in_step=False)
        elif turn is not None:
            late = RequestTimeoutError("the body did not arrive within spec.proxy.timeouts.request")
            self._refuse(late, in_step=False)
        elif self._rest:
            self._refuse(SlowRequestError(f"the head did not arrive within {HEAD_SECONDS:g} s"), in_step=False)
        else:
            self._transport.close()

    def _look_at_reply(self, turn: Turn, now: float) -> None:
        """The request's time is over."""
        if self._course is not None and not self._late:
            self._late = True
            self._alarm.set(now + GRACE_SECONDS)
            # its reply is then that it is too late
            self._course.cancel()
        elif now < turn.deadline + GRACE_SECONDS:
            self._alarm.set(turn.deadline + GRACE_SECONDS)
        else:
            self.abort()

    def _ask_whether_it_listens(self, pause: float) -> None:
        """A client that sends no more may have left altogether, which looks the same until it is sent something."""
        turn = self._turn
        if self._stage is _BUSY and turn is not None:
            self._sender.probe(interim=turn.head.minor == 1)
            following = min(2 * pause, 100 * PROBE_SECONDS)
            self._probe = self._loop.call_later(pause, self._ask_whether_it_listens, following)
