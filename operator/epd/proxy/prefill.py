"""One attempt to have a request answered by one prefill-side engine.

Holds back the head of a stream until its first content, so that an attempt that failed can be made again elsewhere.
Never chooses an engine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from epd.proxy.arrival import NOBODY, Arrival, Attempt, Side
from epd.proxy.course import Signal
from epd.proxy.pods import Member
from epd.proxy.routing import InFlight
from epd.proxy.stream import HEAD_LIMIT_BYTES, EventFilter, EventTooLargeError, StreamHead, Verdict
from epd.proxy.transfers import strip_answer
from epd.proxy.transport import Answer, Call, Cause, Reply, Sink, TakeChunk, Transport, TransportError

EVENT_STREAM: Final = "text/event-stream"
_PASSED_ON: Final = ("content-type", "content-encoding", "retry-after", "cache-control")
"""Headers of an engine that mean something to a client; the others belong to its connection or to vLLM's insides."""
LATE_SECONDS: Final = 0.1
"""A timer is late by milliseconds; by more only where the process has stood still, alone or with its machine. What an
engine sent meanwhile may not have been read yet, so that was not its silence."""


def passed_on(headers: dict[str, str]) -> dict[str, str]:
    """The headers of an engine's answer that its client gets."""
    passed: dict[str, str] = {}
    for name in _PASSED_ON:
        value = headers.get(name)
        if value is not None:
            passed[name] = value
    return passed


class HeadSink:
    """Takes the head of a stream until it shows content or an error, and what comes before its successor takes over."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._decided = Signal(asyncio.get_running_loop())
        self.head = StreamHead()

    async def decided(self) -> StreamHead:
        """Wait for a verdict, or for the end of a stream that gave none. Raises TransportError."""
        self._answer.relay(self)
        await self._decided
        return self.head

    def write(self, data: bytes) -> None:
        """Look for the verdict."""
        verdict = self.head.feed(data)
        if len(self.head.held) > HEAD_LIMIT_BYTES:
            self._answer.pause()
        if verdict is not Verdict.PENDING:
            # last: the successor takes over within this call
            self._decide()

    def end(self) -> None:
        """A stream without content is passed on as it is."""
        self._decide()

    def fail(self, error: TransportError) -> None:
        """Fail the attempt; once the verdict is there, the successor hears of it."""
        if not self._decided.done():
            self._decided.set_exception(error)

    def _decide(self) -> None:
        if not self._decided.done():
            self._decided.set_result(None)


class EngineStream:
    """The body of a streamed answer, from the bytes held back on: whole events, pushed on as they come.

    `head` may grow until the stream is relayed. Fails the sink with Cause.TIMEOUT when the engine is silent for
    `idle_seconds`, or when the time of the monotonic clock is past `deadline`; an engine that is paused is not silent.
    Calls `on_over` once: when the engine has sent all, failed, or is left, however slowly a client takes what came.
    """

    def __init__(
        self, *, answer: Answer, head: StreamHead, deadline: float, idle_seconds: float, on_over: Callable[[], None]
    ) -> None:
        self._answer = answer
        self._head = head
        self._deadline = deadline
        self._idle_seconds = idle_seconds
        self._on_over: Callable[[], None] | None = on_over
        self._closed = False
        self._events = EventFilter()
        self._sink: Sink | None = None
        self._take_chunk: TakeChunk | None = None
        self._paused = False
        self._last = 0.0
        """When the engine last sent something: all that an event changes; the timer looks at it when it is due."""
        self._timer: asyncio.TimerHandle | None = None

    def relay(self, sink: Sink) -> None:
        """Push the events into `sink`."""
        self._sink = sink
        self._take_chunk = getattr(sink, "write_chunk", None)
        self._last = time.monotonic()
        self._arm(self._last)
        self.write(bytes(self._head.held))
        self._answer.relay(self)
        if not self._paused:
            # the head may have been too long to wait for more of it
            self._answer.resume()

    def write(self, data: bytes) -> None:
        """Take bytes of the engine."""
        self._last = time.monotonic()
        if self._sink is None:
            return
        try:
            data = self._events.feed(data)
        except EventTooLargeError as error:
            self._answer.close()
            self.fail(TransportError(Cause.PROTOCOL, str(error)))
            return
        if data:
            self._sink.write(data)

    def write_chunk(self, framed: bytes, start: int) -> None:
        """Take bytes of the engine that came as one chunk, and pass them on as they are if nothing is in them."""
        if self._take_chunk is not None and self._events.passes(framed):
            self._last = time.monotonic()
            self._take_chunk(framed, start)
        else:
            self.write(framed[start:-2])

    def end(self) -> None:
        """The engine's answer is complete."""
        self._leave()
        if self._sink is not None:
            if rest := self._events.finish():
                self._sink.write(rest)
            self._sink.end()

    def fail(self, error: TransportError) -> None:
        """The engine's answer broke off."""
        self._leave()
        if self._sink is not None:
            self._sink.fail(error)

    def pause(self) -> None:
        """Read no more from the engine."""
        self._paused = True
        self._answer.pause()

    def resume(self) -> None:
        """Read on."""
        self._paused = False
        self._last = time.monotonic()
        self._answer.resume()

    def close(self) -> None:
        """Break the engine's connection unless its answer has ended, which aborts its work."""
        self._leave()
        self._sink = self._take_chunk = None
        if not self._closed:
            self._closed = True
            self._answer.close()

    def _arm(self, now: float) -> None:
        due = min(self._last + self._idle_seconds, self._deadline)
        self._timer = asyncio.get_running_loop().call_later(due - now, self._check)

    def _leave(self) -> None:
        """Expect nothing more of the engine."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._on_over is not None:
            on_over, self._on_over = self._on_over, None
            on_over()

    def _check(self) -> None:
        now = time.monotonic()
        if self._paused or now > self._last + self._idle_seconds + LATE_SECONDS:
            self._last = now
        if now < min(self._last + self._idle_seconds, self._deadline):
            self._arm(now)
            return
        self._answer.close()
        self.fail(TransportError(Cause.TIMEOUT, "the engine was silent or the request took too long"))


class PrefillSide(Side):
    """Makes attempts. `idle_seconds` bounds the silence between two chunks of a stream, once it has begun."""

    def __init__(self, *, transport: Transport, load: InFlight, idle_seconds: float) -> None:
        self._transport = transport
        self._load = load
        self._idle_seconds = idle_seconds

    async def attempt(
        self, arrival: Arrival, member: Member, body: bytes | None = None, *, failed_on: frozenset[str] = NOBODY
    ) -> Attempt:
        """Send the request to `member`, with `body` if given. Never raises for what the engine does."""
        call = Call(
            address=member.address,
            path=arrival.path,
            method=arrival.method,
            headers={**arrival.headers, "content-type": "application/json", "x-request-id": arrival.request_id},
            body=arrival.request.body if body is None else body,
        )
        self._load.begin(member.name)
        answer = None
        streams = False
        try:
            answer = await self._transport.send(call)
            headers = passed_on(answer.headers)
            if answer.status < 400 and headers.get("content-type", "").startswith(EVENT_STREAM):
                attempt = await self._receive_stream(arrival, member, answer, headers)
                streams = attempt.reply is not None and attempt.reply.stream is not None
            else:
                reply = Reply(status=answer.status, headers=headers, body=strip_answer(await answer.read()))
                attempt = Attempt(Cause.STATUS if answer.status >= 500 else None, reply)
        except TransportError as error:
            attempt = Attempt(error.cause, None)
        finally:
            if not streams:
                if answer is not None:
                    answer.close()
                self._load.end(member.name)
        return attempt if attempt.cause is None and not failed_on else attempt.after(failed_on, member.name)

    async def _receive_stream(
        self, arrival: Arrival, member: Member, answer: Answer, headers: dict[str, str]
    ) -> Attempt:
        """Wait for what shows how the attempt ends: its content, or an error."""
        head = await HeadSink(answer).decided()
        if head.verdict is Verdict.ERROR:
            # a 4xx is about the request and would be the same elsewhere
            cause = Cause.STREAM_ERROR if head.error_status >= 500 else None
            refusal = {"content-type": "application/json"}
            return Attempt(cause, Reply(status=head.error_status, headers=refusal, body=head.error_body))
        stream = EngineStream(
            answer=answer,
            head=head,
            deadline=arrival.deadline,
            idle_seconds=self._idle_seconds,
            on_over=partial(self._load.end, member.name),
        )
        return Attempt(None, Reply(status=answer.status, headers=headers, stream=stream))
