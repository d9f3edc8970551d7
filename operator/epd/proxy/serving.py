"""The request that a connection is at: its turn, the course that makes its reply, and its end.

Never reads a client's bytes, and never decides which request is next.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from epd.proxy.course import Course
from epd.proxy.errors import ProxyError, RequestTimeoutError
from epd.proxy.framing import CONTINUE
from epd.proxy.handler import Handler, Turn
from epd.proxy.head import Head
from epd.proxy.patience import GRACE_SECONDS, Patience
from epd.proxy.sending import ReplySender
from epd.proxy.transport import Reply

log = logging.getLogger(__name__)

SWALLOW_LIMIT: Final = 64 << 10
"""Bytes of a refused request's body that are read and dropped so that the connection can be used again."""


class Serving:
    """Serves one connection's requests, one after the other.

    `turn` is the one it is at, None before its head is there and once it was refused or its reply is out; `closes` says
    whether the connection ends with the reply that was given last.
    """

    __slots__ = (
        *("_course", "_expects", "_handler", "_late", "_lost", "_patience", "_quit", "_sender", "_transport"),
        *("closes", "turn"),
    )

    def __init__(
        self, handler: Handler, *, sender: ReplySender, patience: Patience, transport: asyncio.Transport
    ) -> None:
        self._handler = handler
        self._sender = sender
        self._patience = patience
        self._transport = transport
        self.turn: Turn | None = None
        self.closes = False
        self._expects = False
        """Whether the client waits for a word before it sends the body."""
        self._course: Course[Reply] | None = None
        """What makes the reply to the turn, while it does."""
        self._late = False
        """Whether the turn's time is over."""
        self._quit = False
        """Whether it was this side that broke off."""
        self._lost = False

    def begin(self, head: Head, *, more: bool) -> None:
        """Begin with a head, behind which `more` has come. Raises ProxyError."""
        turn = self.turn = self._handler.turn(head)
        # RFC 9110 section 10.1.1: a client that sends the body already needs no word
        self._expects = head.expects and not more
        turn.begin()
        if head.length != 0 and not (more and head.length):
            # else the first of it is read at once, and says how long the rest may take
            self._patience.await_body(turn.deadline)
            if self._expects:
                self._expects = False
                self._transport.write(CONTINUE)

    def feed(self, piece: bytes, *, last: bool) -> None:
        """Take part of the body, unless it was refused: what follows is only dropped. Raises ProxyError."""
        turn = self.turn
        if turn is not None:
            turn.feed(piece)
            if not last:
                self._patience.await_body(turn.deadline)

    def answer(self, turn: Turn) -> None:
        """Have the turn's request, which is whole, answered."""
        self._patience.set(turn.deadline)
        self._course = Course(turn.answer(), self._answered)
        self._course.begin()

    def refuse(self, error: ProxyError, *, left: int | None) -> None:
        """Answer before the request is whole; `left` bytes of it are to come, None if nobody knows how many."""
        turn = self.turn
        reply = self._handler.refuse(error) if turn is None else turn.refuse(error)
        # who waits for a word may send the body or not
        swallows = left is not None and left <= SWALLOW_LIMIT and not self._expects
        self.closes = turn is None or not swallows or self._ends_with(turn)
        self._sender.refuse(reply, bodiless=turn is not None and turn.head.method == "HEAD", close=self.closes)
        self.end(left=False)

    def look(self, turn: Turn, now: float) -> None:
        """The time of the turn, which is being answered, is over."""
        if self._course is not None and not self._late:
            self._late = True
            self._patience.set(now + GRACE_SECONDS)
            # its reply is then that it is too late
            self._course.cancel()
        elif now < turn.deadline + GRACE_SECONDS:
            self._patience.set(turn.deadline + GRACE_SECONDS)
        else:
            self.abort()

    def probe(self) -> bool:
        """Send what means nothing to the client. Says whether there is a request that it may wait for."""
        turn = self.turn
        if turn is not None:
            self._sender.probe(interim=turn.head.minor == 1)
        return turn is not None

    def abort(self) -> None:
        """Break the connection off."""
        self._quit = True
        self._transport.abort()

    def end(self, *, left: bool) -> None:
        """End the turn. `left`: the client went before its reply was complete."""
        turn, self.turn = self.turn, None
        if turn is not None:
            sender = self._sender
            streamed, sender.streamed = sender.streamed, 0
            turn.end(left=left, broken=self._quit or sender.broken, streamed=streamed)

    def lost(self) -> None:
        """The connection is gone."""
        self._lost = True
        if self._course is not None:
            # the turn ends when it has let go of everything
            self._course.cancel()
        else:
            self._sender.let_go()
            self.end(left=not (self._quit or self._sender.broken))

    def _answered(self, reply: Reply | None, error: BaseException | None) -> None:
        """The turn's answer is there, or its course was cancelled."""
        self._course = None
        turn = self.turn
        if turn is None or self._lost:
            # the client left while the reply was on its way here
            if reply is not None and reply.stream is not None:
                reply.stream.close()
            self.end(left=not self._quit)
            return
        late, self._late = self._late, False
        if late and isinstance(error, asyncio.CancelledError):
            reply = turn.refuse(RequestTimeoutError())
        try:
            if reply is None:
                raise error or TypeError("no reply")
            self.closes = self._ends_with(turn)
            # HTTP/1.0 has no chunks: its streams end with the connection, which never persists
            self._sender.send(
                reply, bodiless=turn.head.method == "HEAD", chunked=turn.head.minor == 1, close=self.closes
            )
        except asyncio.CancelledError:
            self.abort()
        except Exception:
            log.exception("a reply could not be sent")
            self.abort()

    def _ends_with(self, turn: Turn) -> bool:
        return not turn.head.persistent or self._handler.draining
