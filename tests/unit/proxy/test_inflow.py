from __future__ import annotations

import asyncio

from epd.proxy.inflow import READ_AHEAD, Inflow


class Transport(asyncio.Transport):
    """Notes when it is to be read."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")


def test_what_comes_is_kept_and_beyond_the_bound_no_more_is_read() -> None:
    transport = Transport()
    inflow = Inflow(transport)
    inflow.keep(b"a" * (READ_AHEAD - 1))
    inflow.keep(b"b")
    assert (inflow.held, inflow.has_room(), transport.calls) == (False, True, [])
    inflow.keep(b"c")
    assert (inflow.held, inflow.has_room(), transport.calls) == (True, False, ["pause"])
    assert inflow.rest == b"a" * (READ_AHEAD - 1) + b"bc"


def test_the_transport_is_told_once() -> None:
    transport = Transport()
    inflow = Inflow(transport)
    inflow.read_on()
    for _ in range(2):
        inflow.hold()
    for _ in range(2):
        inflow.read_on()
    assert (inflow.held, transport.calls) == (False, ["pause", "resume"])
