from __future__ import annotations

import pytest

from epd.proxy.chunked import LINE_LIMIT, OVERHEAD_LIMIT, TRAILER_LIMIT, ChunkedBody
from epd.proxy.errors import MalformedRequestError


def read(data: bytes, *, step: int) -> tuple[bytes, int, bool]:
    """What the body has, where it ends, and whether it has ended."""
    body, pieces, at = ChunkedBody(), [], 0
    for start in range(0, len(data), step):
        part = data[start : start + step]
        stopped = body.feed(part, 0, pieces.append)
        at = start + stopped
        if body.complete:
            break
        assert stopped == len(part)
    return b"".join(pieces), at, body.complete


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_a_body_ends_where_it_ends(step: int) -> None:
    data = b'3\r\nabc\r\n00A;x="y"\r\n0123456789\r\n0\r\nA: b\r\n\r\n'
    assert read(data + b"GET", step=step) == (b"abc0123456789", len(data), True)


def test_what_is_not_whole_is_not_complete() -> None:
    data = b"3\r\nabc\r\n0\r\n\r\n"
    for end in range(len(data)):
        assert read(data[:end], step=1000)[2] is False
        assert read(data[:end], step=1)[2] is False


def test_limits_are_where_they_are_said_to_be() -> None:
    size = b"1;" + b"x" * (LINE_LIMIT - 4) + b"\r\n"
    assert read(size, step=1) == (b"", LINE_LIMIT, False)
    trailers = b"a: b\r\n" * (TRAILER_LIMIT // 6)
    assert read(b"0\r\n" + trailers + b"\r\n", step=50)[2]
    with pytest.raises(MalformedRequestError, match="longer"):
        read(size.replace(b";", b";x"), step=1)
    with pytest.raises(MalformedRequestError, match="trailer section"):
        read(b"0\r\n" + trailers + b"a: b\r\n\r\n", step=50)


def test_framing_may_not_outweigh_the_body() -> None:
    assert read(b"1\r\nx\r\n" * 100_000 + b"0\r\n\r\n", step=65536) == (b"x" * 100_000, 600_005, True)
    padded = b"1;" + b"x" * 100 + b"\r\nx\r\n"
    # 105 bytes of a line, of which 16 are free, and 2 for the byte that it brings
    within = OVERHEAD_LIMIT // (len(padded) - 3 - 16 - 2)
    assert len(read(padded * within, step=65536)[0]) == within
    with pytest.raises(MalformedRequestError, match="more bytes than the body"):
        read(padded * (within + 2), step=65536)
