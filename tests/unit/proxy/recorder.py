"""A handler that records what reaches it, and a connection of it over a transport in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from epd.proxy.errors import ProxyError
from epd.proxy.handler import Handler, Turn
from epd.proxy.head import Head
from epd.proxy.inbound import Connection
from epd.proxy.transport import Reply


def ok(body: bytes = b"ok") -> Reply:
    return Reply(status=200, headers={"content-type": "text/plain"}, body=body)


async def answers_ok(turn: RecordedTurn) -> Reply:
    return ok()


@dataclass(eq=False)
class Recorder(Handler):
    """`turns` has every request that was begun; `begins` and `answers` decide what becomes of them."""

    answers: Callable[[RecordedTurn], Awaitable[Reply]] = answers_ok
    begins: Callable[[RecordedTurn], None] = lambda turn: None
    feeds: Callable[[RecordedTurn], None] = lambda turn: None
    # made anew each time: a default of the class would hide the attribute of the compiled one
    draining: bool = field(default_factory=lambda: False)
    seconds: float = 60
    turns: list[RecordedTurn] = field(default_factory=list)
    refusals: list[ProxyError] = field(default_factory=list)

    def turn(self, head: Head) -> RecordedTurn:
        turn = RecordedTurn(head, self, time.monotonic() + self.seconds)
        self.turns.append(turn)
        return turn

    def refuse(self, error: ProxyError) -> Reply:
        self.refusals.append(error)
        return Reply(status=error.status, headers=error.headers(), body=error.body())

    @property
    def answered(self) -> list[RecordedTurn]:
        return [turn for turn in self.turns if turn.answering]


class RecordedTurn(Turn):
    def __init__(self, head: Head, recorder: Recorder, deadline: float) -> None:
        self.head = head
        self.recorder = recorder
        self.deadline = deadline
        self.body = b""
        self.answering = False
        self.cancelled = False
        self.ends: list[bool] = []
        """`left` of each call of `end`, of which there must be one."""
        self.broken: bool | None = None
        self.streamed: int | None = None

    def begin(self) -> None:
        self.recorder.begins(self)

    def feed(self, data: bytes) -> None:
        assert type(data) is bytes
        assert data
        self.body += data
        self.recorder.feeds(self)

    async def answer(self) -> Reply:
        self.answering = True
        try:
            return await self.recorder.answers(self)
        except asyncio.CancelledError:
            self.cancelled = True
            raise

    def refuse(self, error: ProxyError) -> Reply:
        self.recorder.refusals.append(error)
        return Reply(status=error.status, headers=error.headers(), body=error.body())

    def end(self, *, left: bool, broken: bool, streamed: int) -> None:
        self.ends.append(left)
        self.broken, self.streamed = broken, streamed


class Wire(asyncio.Transport):
    """A transport that keeps what is written. `sent` is all of it; `state` how it ended.

    `unread` is what its client has not read, who reads at once where `high_water` is None; `tls` that it can't be
    closed in one direction alone.
    """

    high_water: int | None = None
    unread = 0
    asked = 0
    """How often `unread` was looked at."""
    tls = False

    def __init__(self, handler: Recorder) -> None:
        super().__init__()
        self.sent = b""
        self.writes: list[bytes] = []
        self.state = "open"
        self.reading = True
        self.made: list[Connection] = []
        self.lost: list[Connection] = []
        self.connection = Connection(handler, on_made=self.made.append, on_lost=self.lost.append)
        self.connection.connection_made(self)

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert self.state == "open", "written after the end"
        self.writes.append(bytes(data))
        self.sent += bytes(data)
        if self.high_water is not None:
            before, self.unread = self.unread, self.unread + len(data)
            if before <= self.high_water < self.unread:
                self.connection.pause_writing()

    def get_write_buffer_size(self) -> int:
        self.asked += 1
        return self.unread

    def writelines(self, list_of_data: object) -> None:
        self.write(b"".join(list_of_data))  # type: ignore[call-overload] # asyncio's own is untyped

    def can_write_eof(self) -> bool:
        return not self.tls

    def write_eof(self) -> None:
        assert not self.tls
        self.state = "half-closed"

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.state in ("closed", "aborted")

    def close(self) -> None:
        self._end("closed")

    def abort(self) -> None:
        self._end("aborted")

    def _end(self, state: str) -> None:
        if not self.is_closing():
            self.state = state
            self.connection.connection_lost(None)

    # the client's side

    def receive(self, data: bytes, *, size: int = 0) -> None:
        """Bytes of the client come, in pieces of `size` bytes if given, as long as this side reads."""
        step = size or len(data)
        for at in range(0, len(data), step):
            if self.is_closing():
                return
            self.connection.data_received(data[at : at + step])

    def read_all(self) -> None:
        """The client reads what it was sent."""
        before, self.unread = self.unread, 0
        if self.high_water is not None and before > self.high_water:
            self.connection.resume_writing()

    async def statuses(self) -> list[int]:
        """Status of each final reply so far, once nothing is going on."""
        for _ in range(60):
            await asyncio.sleep(0)
        return statuses(self.sent)


def statuses(sent: bytes) -> list[int]:
    """Status of each final reply in bytes that have whole replies with lengths only."""
    found = []
    while sent:
        head, mark, sent = sent.partition(b"\r\n\r\n")
        assert mark, "a head without end"
        status = int(head.split(b" ")[1])
        if status == 100:
            continue
        found.append(status)
        fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
        length = int(fields[b"content-length"])
        assert len(sent) >= length
        sent = sent[length:]
    return found
