"""All that can be seen of an answer on a connection whose other end is the test."""

from __future__ import annotations

from dataclasses import dataclass

from epd.proxy.transport import Cause, TransportError
from unit.proxy.rawengine import Recorder
from unit.proxy.wires import Line

LENGTH = {"content-length": "2"}
"""Headers of the usual answer."""


@dataclass
class Outcome:
    """All that can be seen of an answer. `headers` are None where no head came."""

    status: int
    headers: dict[str, str] | None
    body: bytes
    cause: Cause | None
    kept: bool


async def outcome(*pieces: bytes, eof: bool = False, bodyless: bool = False) -> Outcome:
    line = Line()
    answer = line.ask(bodyless=bodyless)
    sink = Recorder()
    answer.relay(sink)
    line.hear(*pieces)
    kept = line.freed == 1 and not line.wire.aborted
    line.hear(eof=eof)
    assert line.freed <= 1
    if answer.arrived.done() and (error := answer.arrived.exception()) is not None:
        assert isinstance(error, TransportError)
        assert not sink.writes
        return Outcome(0, None, b"", error.cause, kept)
    assert sink.over.done(), "neither complete nor broken"
    broke = sink.over.result()
    return Outcome(answer.status, dict(answer.headers), bytes(sink.body), broke.cause if broke else None, kept)
