"""What a connection to an engine writes, and when."""

from __future__ import annotations

import pytest

from epd.proxy.outgoing import BATCH_BYTES, JOINED_BYTES, RequestSender
from epd.proxy.transport import Body, Buffer
from unit.proxy.wires import Line, Wire

PIECES: tuple[Buffer, ...] = (b"a" * 10, memoryview(b"b" * (2 * BATCH_BYTES)), bytearray(b"c" * 3), b"")


@pytest.mark.parametrize(
    "body", [b"", b"x" * JOINED_BYTES, b"x" * (JOINED_BYTES + 1), b"x" * (3 * BATCH_BYTES), PIECES]
)
async def test_a_body_is_written_whole(body: Body) -> None:
    line = Line()
    line.ask(body)
    whole = body if isinstance(body, bytes) else b"".join(body)
    assert line.wire.written() == b"HEAD" + whole
    assert max(sum(map(len, batch)) for batch in line.wire.batches) <= BATCH_BYTES


async def test_a_small_body_is_one_write_and_a_large_one_is_not_copied() -> None:
    small, large = Line(), Line()
    small.ask((b"a", b"b"))
    large.ask(PIECES)
    assert small.wire.batches == [[b"HEADab"]]
    views = [piece for batch in large.wire.batches for piece in batch if isinstance(piece, memoryview)]
    assert {bytes(view.obj)[:1] for view in views} == {b"a", b"b", b"c"}
    assert all(any(view.obj is (p.obj if isinstance(p, memoryview) else p) for p in PIECES) for view in views)


async def test_a_full_transport_holds_back_the_rest() -> None:
    line = Line(full_after=2)
    line.ask(b"x" * (5 * BATCH_BYTES))
    assert len(line.wire.batches) == 2
    line.connection.resume_writing()
    assert line.wire.written() == b"HEAD" + b"x" * (5 * BATCH_BYTES)


@pytest.mark.parametrize(("size", "unsent"), [(JOINED_BYTES, False), (JOINED_BYTES + 1, True)])
async def test_only_a_large_body_that_waits_in_the_transport_is_unsent(size: int, *, unsent: bool) -> None:
    class Slow(Wire):
        def get_write_buffer_size(self) -> int:
            return 1

    sender = RequestSender(Slow(Line().connection))
    assert not sender.unsent()
    sender.send(b"HEAD", b"x" * size, size)
    assert sender.unsent() == unsent


async def test_what_is_dropped_is_not_written_any_more() -> None:
    line = Line()
    sender = RequestSender(line.wire)
    sender.pause()
    sender.send(b"HEAD", b"x" * (2 * BATCH_BYTES), 2 * BATCH_BYTES)
    assert (sender.unsent(), len(line.wire.batches)) == (True, 1)
    sender.drop()
    sender.resume()
    assert (sender.unsent(), len(line.wire.batches)) == (False, 1)
