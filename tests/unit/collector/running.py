"""A loop that is running, with passes that end when a test says so."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from epd.collector.asking import Brief
from epd.collector.inputs import Claim, Liveness, Policy
from epd.collector.loop import Loop
from epd.collector.policy import InForce
from epd.collector.result import PassResult
from epd.collector.seen import Root
from unit.clocks import Clock
from unit.collector.tree import POLICY

CLAIM = Claim(name="ai/ec", uid="u")
BRIEF = Brief(claim=CLAIM, in_force=InForce(policy=POLICY, users=("a",)))
DONE = PassResult(owned=True, rescanned=True)
STILL_HIGH = PassResult(owned=True, rescanned=True, over_watermark=True)
PATIENCE = 10.0
"""Seconds after which a test that waits for a thread has failed."""


class Asks:
    last: Liveness | None = None
    last_valid: float | None = None

    def __init__(self, brief: Brief = BRIEF) -> None:
        self.brief = brief

    def begin(self) -> Brief:
        return self.brief


class Collects:
    """Makes passes that wait until a test lets them end with `result`."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.results: list[PassResult | Exception] = []
        self.go = threading.Semaphore(0)
        self.given: list[tuple[Claim, Policy]] = []

    def run(self, claim: Claim, policy: Policy) -> PassResult:
        self.given.append((claim, policy))
        self.begun.release()
        self.go.acquire()
        result = self.results.pop(0) if self.results else DONE
        if isinstance(result, Exception):
            raise result
        return result

    def end(self, result: PassResult | Exception = DONE) -> None:
        """Let the pass under way, or the next one, end."""
        self.results.append(result)
        self.go.release()

    def begins(self) -> bool:
        return self.begun.acquire(timeout=PATIENCE)


@dataclasses.dataclass
class Running:
    loop: Loop
    asks: Asks
    collects: Collects
    clock: Clock
    thread: threading.Thread
    ended: list[bool]


@contextmanager
def running(
    *,
    asks: Asks | None = None,
    usage: Callable[[], float] = lambda: 0.5,
    interval: float = 3600,
    poll: float = 0.01,
    clock: Callable[[], float] | None = None,
) -> Iterator[Running]:
    """A loop that is running; intervals are so long that only what a test does begins a second pass."""
    given, collects, own = asks or Asks(), Collects(), Clock(100.0)
    loop = Loop(
        root=Root(claim="ec"),
        asks=given,
        collects=collects,
        usage=usage,
        interval=interval,
        poll=poll,
        clock=clock or own,
        wall=lambda: 7.0,
    )
    ended: list[bool] = []
    thread = threading.Thread(target=lambda: ended.append(loop.run()))
    thread.start()
    try:
        yield Running(loop, given, collects, own, thread, ended)
    finally:
        loop.stop()
        for _ in range(10):
            collects.end()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def until(condition: Callable[[], bool]) -> None:
    """Wait for another thread; the condition comes about within milliseconds or never."""
    waiting = threading.Event()
    for _ in range(int(PATIENCE / 0.005)):
        if condition():
            return
        waiting.wait(0.005)
    pytest.fail("it did not come about")
