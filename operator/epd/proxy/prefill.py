"""One attempt to have a request answered by one prefill-side engine.

Holds back the head of a stream until its first content, so that an attempt that failed can be made again elsewhere.
Never chooses an engine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from epd.proxy.metrics import Metrics
from epd.proxy.pods import Member
from epd.proxy.requests import ParsedRequest, strip_answer
from epd.proxy.routing import InFlight
from epd.proxy.stream import EventFilter, StreamHead, Verdict
from epd.proxy.transport import Answer, Call, Cause, Reply, Transport, TransportError

EVENT_STREAM: Final = "text/event-stream"
_PASSED_ON: Final = ("content-type", "content-encoding", "retry-after", "cache-control")
"""Headers of an engine that mean something to a client; the others belong to its connection or to vLLM's insides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request as it came. `headers` are those that engines may see; times are of the monotonic clock, in seconds."""

    path: str
    request: ParsedRequest
    request_id: str
    headers: Mapping[str, str]
    arrived: float
    deadline: float


@dataclass(frozen=True, slots=True)
class Attempt:
    """How an attempt ended. `cause` is None where the reply counts; else `reply` is what the engine said of it."""

    cause: Cause | None
    reply: Reply | None


class EngineStream:
    """The body of a streamed answer, from the bytes held back on.

    Owns, through `held`, the connection and the engine's place in the load.
    """

    def __init__(self, *, answer: Answer, head: bytes, deadline: float, idle_seconds: float, held: ExitStack) -> None:
        self._answer = answer
        self._pending = head
        self._deadline = deadline
        self._idle_seconds = idle_seconds
        self._held = held
        self._events = EventFilter()

    async def read_chunk(self) -> bytes:
        """Return the next whole events, b"" at the end. Raises TransportError if it breaks off or is silent."""
        chunk, self._pending = self._pending, b""
        while chunk := chunk or await self._next():
            if data := self._events.feed(chunk):
                return data
            chunk = b""
        return self._events.finish()

    async def _next(self) -> bytes:
        try:
            async with asyncio.timeout(min(self._idle_seconds, self._deadline - time.monotonic())):
                return await self._answer.read_chunk()
        except TimeoutError:
            raise TransportError(Cause.TIMEOUT, "the engine was silent or the request took too long") from None

    def close(self) -> None:
        """Break the engine's connection unless its answer has ended, which aborts its work."""
        self._held.close()


class PrefillSide:
    """Makes attempts. `idle_seconds` bounds the silence between two chunks of a stream, once it has begun."""

    def __init__(self, *, transport: Transport, load: InFlight, metrics: Metrics, idle_seconds: float) -> None:
        self._transport = transport
        self._load = load
        self._metrics = metrics
        self._idle_seconds = idle_seconds

    async def attempt(self, arrival: Arrival, member: Member, body: bytes | None = None) -> Attempt:
        """Send the request to `member`, with `body` if given. Never raises for what the engine does."""
        with ExitStack() as held:
            self._load.begin(member.name)
            held.callback(self._load.end, member.name)
            call = Call(
                address=member.address,
                path=arrival.path,
                headers={**arrival.headers, "content-type": "application/json", "x-request-id": arrival.request_id},
                body=arrival.request.body if body is None else body,
            )
            try:
                answer = await self._transport.send(call)
                held.callback(answer.close)
                return await self._receive(arrival, answer, held)
            except TransportError as error:
                return Attempt(error.cause, None)

    async def _receive(self, arrival: Arrival, answer: Answer, held: ExitStack) -> Attempt:
        headers = {name: answer.headers[name] for name in _PASSED_ON if name in answer.headers}
        if not headers.get("content-type", "").startswith(EVENT_STREAM):
            body = strip_answer(await answer.read())
            cause = Cause.STATUS if answer.status >= 500 else None
            return Attempt(cause, Reply(status=answer.status, headers=headers, body=body))
        head = StreamHead()
        while head.verdict is Verdict.PENDING and (chunk := await answer.read_chunk()):
            head.feed(chunk)
        if head.verdict is Verdict.ERROR:
            # a 4xx is about the request and would be the same elsewhere
            cause = Cause.STREAM_ERROR if head.error_status >= 500 else None
            refusal = {"content-type": "application/json"}
            return Attempt(cause, Reply(status=head.error_status, headers=refusal, body=head.error_body))
        stream = EngineStream(
            answer=answer,
            head=bytes(head.held),
            deadline=arrival.deadline,
            idle_seconds=self._idle_seconds,
            held=held.pop_all(),
        )
        return Attempt(None, Reply(status=answer.status, headers=headers, stream=stream))
