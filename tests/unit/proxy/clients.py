"""Clients of a connection in memory: what they send, and the streams and handlers that they meet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from epd.proxy.errors import BodyTooLargeError, NotFoundError
from epd.proxy.transport import Reply, Sink
from unit.proxy.recorder import RecordedTurn, Recorder, ok

GET = b"GET /%d HTTP/1.1\r\nHost: p\r\n\r\n"


def post(body: bytes = b"{}", *fields: bytes, length: int | None = None) -> bytes:
    size = b"Content-Length: %d" % (len(body) if length is None else length)
    return b"\r\n".join([b"POST / HTTP/1.1", b"Host: p", size, *fields, b"", body])


class Stream:
    """A stream that a test pushes."""

    def __init__(self) -> None:
        self.sink: Sink
        self.calls: list[str] = []

    def relay(self, sink: Sink) -> None:
        self.sink = sink

    async def read_chunk(self) -> bytes:
        raise AssertionError

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")

    def close(self) -> None:
        self.calls.append("close")


def streams(stream: Stream) -> Recorder:
    async def answers(turn: RecordedTurn) -> Reply:
        return Reply(status=200, headers={"content-type": "text/event-stream"}, stream=stream)

    return Recorder(answers=answers)


def waits(event: asyncio.Event) -> Recorder:
    async def answers(turn: RecordedTurn) -> Reply:
        await event.wait()
        return ok()

    return Recorder(answers=answers)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what no Event announces, at most 10 s."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - as said
            await asyncio.sleep(0.001)


async def settle() -> None:
    for _ in range(60):
        await asyncio.sleep(0)


def refuses(turn: RecordedTurn) -> None:
    raise NotFoundError("no")


def refuses_head(turn: RecordedTurn) -> None:
    raise BodyTooLargeError("no")


def refuses_body(turn: RecordedTurn) -> None:
    if len(turn.body) > 10:
        raise BodyTooLargeError("no")
