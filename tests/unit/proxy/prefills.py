"""Attempts at one engine, the streams that come of them, and what a client would get."""

from __future__ import annotations

import asyncio

from epd.proxy import prefill
from epd.proxy.arrival import Attempt
from epd.proxy.prefill import EngineStream, PrefillSide
from epd.proxy.stream import StreamHead
from epd.proxy.transport import Answer, Cause
from unit.proxy.engines import Bench, arrival, member
from unit.proxy.rawengine import Recorder

D0 = member("d0")
LAST = b'data: {"choices":[],"kv_transfer_params":{}}\n\n'
STRIPPED = b'data: {"choices":[]}\n\n'
DONE = b"data: [DONE]\n\n"


async def attempt(b: Bench, idle: float = 60, seconds: float = 60) -> Attempt:
    side = PrefillSide(transport=b.engines, load=b.load, idle_seconds=idle)
    return await side.attempt(arrival(seconds=seconds), D0)


def stream_of(attempt: Attempt) -> EngineStream:
    assert attempt.reply is not None
    assert isinstance(attempt.reply.stream, EngineStream)
    return attempt.reply.stream


async def relayed(attempt: Attempt) -> tuple[bytes, Cause | None]:
    """All that a client would get, and why it broke off."""
    sink = Recorder()
    stream_of(attempt).relay(sink)
    broke = await asyncio.wait_for(sink.over, 10)
    return bytes(sink.body), broke.cause if broke else None


def open_stream(
    answer: Answer, *, head: bytes = b"", idle: float = 60, seconds: float = 60, closed: list[int] | None = None
) -> EngineStream:
    return EngineStream(
        answer=answer,
        head=StreamHead(held=bytearray(head)),
        deadline=prefill.time.monotonic() + seconds,
        idle_seconds=idle,
        on_over=lambda: closed.append(1) if closed is not None else None,
    )
