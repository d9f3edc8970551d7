"""A connection to an engine without a socket: the test is the transport."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from epd.proxy.answers import EngineAnswer
from epd.proxy.transport import Body, Buffer
from epd.proxy.upstream import EngineConnection


class Wire(asyncio.Transport):
    """Keeps what is written; `full_after` writes it asks to pause, as a transport does whose peer reads nothing."""

    def __init__(self, connection: EngineConnection, full_after: int | None = None) -> None:
        super().__init__()
        self.connection = connection
        self.batches: list[list[Buffer]] = []
        self.paused = False
        self.aborted = False
        self.full_after = full_after

    def write(self, data: Buffer) -> None:
        self.writelines([data])

    def writelines(self, data: Iterable[Buffer]) -> None:
        self.batches.append(list(data))
        if len(self.batches) == self.full_after:
            self.connection.pause_writing()

    def written(self) -> bytes:
        return b"".join(bytes(piece) for batch in self.batches for piece in batch)

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        assert not self.paused
        self.paused = True

    def resume_reading(self) -> None:
        assert self.paused
        self.paused = False

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


@dataclass
class Line:
    """A connection over a `Wire`, and what its owner hears."""

    freed: int = 0
    lost: int = 0
    full_after: int | None = None
    connection: EngineConnection = field(init=False)
    wire: Wire = field(init=False)

    def __post_init__(self) -> None:
        self.connection = EngineConnection(on_free=self._free, on_lost=self._lose)
        self.wire = Wire(self.connection, self.full_after)
        self.connection.connection_made(self.wire)

    def _free(self, _: EngineConnection) -> None:
        self.freed += 1

    def _lose(self, _: EngineConnection) -> None:
        self.lost += 1

    def ask(self, body: Body = b"", *, bodyless: bool = False) -> EngineAnswer:
        size = len(body) if isinstance(body, bytes) else sum(map(len, body))
        return self.connection.ask(b"HEAD", body, size, bodyless=bodyless)

    def hear(self, *pieces: bytes, eof: bool = False) -> None:
        for piece in pieces:
            if not self.wire.aborted:
                self.connection.data_received(piece)
        if eof and not self.wire.aborted:
            self.connection.eof_received()
