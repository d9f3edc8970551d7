"""A scheduler's half whose threads are the test's: searches end when the test says, with what it says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from epd.connector.entry import Expectation, Reason, Rejected
from epd.connector.finder import Found, Full, Missed
from epd.connector.holdings import Key, Load
from epd.connector.local import Copy
from epd.connector.probe import Task
from epd.connector.scheduler import SchedulerSide

TOKENS = 10
"""Scheduled in a step that computes something."""


class Pool:
    """Tasks wait until `run` makes their calls. After `hang` they have threads, which come back with `run`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.tasks: list[Task[Any]] = []
        self.threads: list[threading.Thread] = []
        self.gate: threading.Event | None = None

    def submit(self, call: Callable[[], Any], *, dispose: Callable[[Any], object] | None = None) -> Task[Any]:
        def gated() -> Any:
            if self.gate is not None:
                self.gate.wait()
            return call()

        self.tasks.append(Task(gated, dispose, self.clock))
        return self.tasks[-1]

    def run(self) -> None:
        if self.gate is not None:
            self.gate.set()
        for thread in self.threads:
            thread.join()
        while self.tasks:
            self.tasks.pop(0).run()

    def hang(self) -> None:
        self.gate = threading.Event()
        self.threads = [threading.Thread(target=task.run, daemon=True) for task in self.tasks if not task.done]
        for thread in self.threads:
            thread.start()
        while not all(task.done or task.started is not None for task in self.tasks):
            time.sleep(0)


@dataclass
class Health:
    suspect: bool = False
    long: bool = False

    def doubt(self) -> None:
        self.suspect = True

    def lasting(self, now: float) -> bool:
        return self.suspect and self.long


@dataclass
class Finder:
    """Finds what is in `entries`; says what it was asked for."""

    entries: dict[Key, Found | Missed | Full] = field(default_factory=dict)
    asked: list[tuple[Key, bool]] = field(default_factory=list)
    released: list[str] = field(default_factory=list)

    def find(self, key: Key, modality: str, *, pin: bool) -> Found | Missed | Full:
        self.asked.append((key, pin))
        return self.entries.get(key, Missed("absent"))

    def give_back(self, outcome: Found | Missed | Full) -> None:
        if isinstance(outcome, Found):
            self.release(outcome.source)

    def release(self, source: Any) -> None:
        self.released.append(source.path)


class Upkeep:
    stamp_seconds = 100.0

    def __init__(self) -> None:
        self.stamped: list[str] = []

    def used(self, identifiers: Any) -> None:
        self.stamped += identifiers

    def unpin(self, source: Any) -> None:
        self.stamped.append(f"unpin {source.path}")

    def step(self, now: float) -> None:
        """Nothing is due."""


class Scripted:
    """The half under test, with its surroundings."""

    def __init__(self, *, producer: bool = False, consumer: bool = True) -> None:
        self.now = 1000.0
        self.pool, self.local = Pool(lambda: self.now), Pool(lambda: self.now)
        self.health, self.finder, self.upkeep = Health(), Finder(), Upkeep()
        self.disk: set[str] = set()
        self.side = SchedulerSide(
            store=SimpleNamespace(measure=self._measure),
            finder=self.finder,
            upkeep=self.upkeep,
            health=self.health,
            lookups=self.pool,
            local=self.local,
            producer=producer,
            consumer=consumer,
            deadline=5.0,
            fields=lambda modality: {"grid"},
            clock=lambda: self.now,
        )

    def _measure(self, wanted: Expectation) -> None:
        if wanted.identifier not in self.disk:
            raise Rejected(Reason.ABSENT)

    def publish(self, identifier: str, rows: int = 4) -> Load:
        load = Load(identifier, f"/copies/{identifier}", 0, rows, 8, "BF16", None)
        copy = Copy(load.path, memoryview(b""), 64)
        self.finder.entries[identifier, rows] = Found(load, copy, 0.01)
        return load

    def allocate(self, request: Any) -> None:
        """Ask until its items were searched for, then have the request scheduled."""
        self.side.ensure(request, 0)
        self.pool.run()
        self.side.ensure(request, 0)
        self.side.allocated(request, 0)

    def released(self) -> list[str]:
        self.local.run()
        return self.finder.released


def request(name: str, *items: str, pixels: bool = True, rows: int = 4) -> Any:
    """A request with an item at each hundred tokens."""
    data = {"grid": SimpleNamespace(data=1)} | ({"pixels": SimpleNamespace(data=1)} if pixels else {})
    features = [
        SimpleNamespace(
            identifier=item,
            modality="image",
            data=data,
            mm_position=SimpleNamespace(offset=number * 100, length=rows, get_num_embeds=lambda: rows),
        )
        for number, item in enumerate(items)
    ]
    return SimpleNamespace(request_id=name, mm_features=features)
