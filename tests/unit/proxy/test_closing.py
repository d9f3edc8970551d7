from __future__ import annotations

import asyncio
import errno

import pytest

from epd.proxy.closing import LINGER_LIMIT, LINGER_SECONDS, Closing


class Transport(asyncio.Transport):
    """Notes how it is ended."""

    def __init__(self, *, tls: bool = False, waiting: int = 0) -> None:
        super().__init__()
        self.tls = tls
        self.waiting = waiting
        self.ends: list[str] = []

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def can_write_eof(self) -> bool:
        return not self.tls

    def write_eof(self) -> None:
        self.ends.append("eof")

    def close(self) -> None:
        self.ends.append("close")

    def abort(self) -> None:
        self.ends.append("abort")


@pytest.mark.parametrize(
    ("tls", "whole", "eof", "ends"),
    [
        (False, True, False, ["eof"]),
        (False, False, False, ["eof"]),
        (False, True, True, ["close"]),
        (True, True, False, ["close"]),
        # what is on its way would reset the connection
        (True, False, False, []),
        (True, False, True, ["close"]),
    ],
)
def test_how_it_begins(*, tls: bool, whole: bool, eof: bool, ends: list[str]) -> None:
    transport = Transport(tls=tls)
    due = Closing(transport, until=1e18).begin(whole=whole, eof=eof)
    assert transport.ends == ends
    # asyncio bounds the end of TLS by itself
    assert (due is None) == (tls and bool(ends))


def test_a_client_that_has_reset_the_connection_is_no_matter() -> None:
    class Reset(Transport):
        def write_eof(self) -> None:
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    transport = Reset()
    assert Closing(transport, until=1e18).begin(whole=True, eof=False) is None
    assert transport.ends == ["abort"]


def test_it_goes_on_while_there_is_something_to_read_and_time() -> None:
    transport = Transport(waiting=1)
    closing = Closing(transport, until=100)
    assert closing.unread
    assert closing.look(10) == 10 + LINGER_SECONDS
    assert closing.look(98) == 100
    assert transport.ends == []
    assert closing.look(100) is None
    assert transport.ends == ["abort"]


def test_with_nothing_left_to_read_it_ends() -> None:
    transport = Transport()
    closing = Closing(transport, until=100)
    assert not closing.unread
    assert closing.look(10) is None
    assert transport.ends == ["abort"]


def test_tls_is_closed_and_not_cut_off() -> None:
    transport = Transport(tls=True)
    closing = Closing(transport, until=100)
    assert closing.unread
    assert closing.look(10) is None
    assert transport.ends == ["close"]


def test_what_comes_is_dropped_within_bounds() -> None:
    transport = Transport()
    closing = Closing(transport, until=100)
    closing.drop(LINGER_LIMIT)
    assert transport.ends == []
    closing.drop(1)
    assert transport.ends == ["abort"]
