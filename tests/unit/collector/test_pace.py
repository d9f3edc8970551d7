from __future__ import annotations

import pytest

from epd.collector.pace import Pace
from unit.clocks import Clock


def test_rate_holds() -> None:
    clock = Clock()
    pace = Pace(1000.0, clock=clock, sleep=clock.sleep, stopping=lambda: False)
    pace.begin(1000.0)
    for _ in range(1000):
        assert pace.take(64)

    assert 64_000 / clock.now == pytest.approx(1000, rel=0.05)


def test_slice_ends() -> None:
    clock = Clock()
    pace = Pace(10.0, clock=clock, sleep=clock.sleep, stopping=lambda: False)
    pace.begin(5.0)
    taken = 0
    while pace.take(10):
        taken += 10

    assert (taken, pace.over) == (50, True)
    pace.begin(5.0)
    assert not pace.over


def test_stop_ends_waiting_at_once() -> None:
    clock = Clock()
    pace = Pace(0.001, clock=clock, sleep=clock.sleep, stopping=lambda: clock.now > 0.1)
    pace.begin(1e9)

    assert pace.take(64)
    assert not pace.take(64)
    assert clock.now < 1
