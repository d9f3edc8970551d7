from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from epd.connector import upkeep
from epd.connector.local import Copy
from epd.connector.pins import Pin
from epd.connector.upkeep import UPKEEP_SECONDS, Upkeep

from .scripted import Health, Pool


class Store:
    """Says what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.asked.append((name, *arguments))


class Scripted:
    def __init__(self, **widths: int) -> None:
        self.now = 1000.0
        self.store, self.health, self.pool = Store(), Health(), Pool(lambda: self.now)
        self.upkeep = Upkeep(
            self.store,
            self.pool,
            self.health,
            record="record",
            widths=widths,
            stamp_seconds=450,
            deadline=5,
            clock=lambda: self.now,
        )

    def step(self) -> list[Any]:
        self.upkeep.step(self.now)
        self.pool.run()
        asked, self.store.asked = self.store.asked, []
        return asked


def test_record_heartbeat_and_widths_come_with_the_first_step_and_each_minute():
    s = Scripted(image=256)
    regular = [("prepare", "record"), ("heartbeat",), ("write_widths", {"image": 256})]
    assert s.step() == regular
    assert s.step() == []
    s.now += UPKEEP_SECONDS
    assert s.step() == regular


def test_who_measured_no_widths_writes_none():
    assert Scripted().step() == [("prepare", "record"), ("heartbeat",)]


def test_stamps_and_pins_go_with_the_next_step():
    s = Scripted()
    s.step()
    pin = Pin("/pins/1", SimpleNamespace())
    s.upkeep.used(["red"])
    s.upkeep.used(["red"])
    s.upkeep.unpin(pin)
    s.upkeep.unpin(Copy("/copies/1", memoryview(b""), 0))
    assert s.step() == [("unpin", pin), ("stamp", "red")]
    assert s.step() == []


def test_one_call_at_a_time_and_one_that_hangs_is_doubt():
    s = Scripted()
    s.upkeep.step(s.now)
    s.pool.hang()
    s.upkeep.used(["red"])
    s.now += 4
    s.upkeep.step(s.now)
    assert (len(s.pool.tasks), s.health.suspect) == (1, False)
    s.now += 2
    s.upkeep.step(s.now)
    assert (len(s.pool.tasks), s.health.suspect) == (1, True)
    s.pool.run()
    s.store.asked.clear()
    assert s.step() == []  # in doubt nothing is asked
    s.health.suspect = False
    assert s.step() == [("stamp", "red")]


def test_many_stamps_are_many_calls_since_one_that_takes_long_is_taken_for_hanging():
    s = Scripted()
    s.step()
    s.upkeep.used([f"image-{number}" for number in range(150)])
    for number in range(150):
        s.upkeep.unpin(Pin(f"/pins/{number}", SimpleNamespace()))
    assert [len(s.step()) for _ in range(4)] == [128, 128, 44, 0]


def test_a_store_that_hangs_for_long_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(upkeep, "_DUE", 10)
    s = Scripted()
    s.health.suspect = True
    for number in range(100):
        s.upkeep.used([f"image-{number}"])
        assert s.step() == []
    s.health.suspect = False
    assert len([name for name, *_ in s.step() if name == "stamp"]) == 10
