from __future__ import annotations

import asyncio

import pytest

from epd.controller.errors import Rejected, Retryable
from epd.controller.outcome import Outcome
from epd.controller.queue import WorkQueue
from epd.controller.worker import work


class Reconciler:
    """Ends each reconcile as it was told."""

    def __init__(self, *ends: Outcome | Exception) -> None:
        self.ends = list(ends)
        self.keys: list[str] = []

    async def reconcile(self, key: str) -> Outcome:
        self.keys.append(key)
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end


class Queue(WorkQueue):
    """Tells what came back, and shuts down after the last key."""

    def __init__(self) -> None:
        super().__init__("test", chance=lambda: 0.0)
        self.delays: list[tuple[str, float]] = []

    def add_after(self, key: str, seconds: float) -> None:
        self.delays.append((key, seconds))

    def done(self, key: str) -> None:
        super().done(key)
        if not len(self):
            self.shutdown()


@pytest.mark.parametrize(
    ("end", "delays"),
    [
        (Outcome(), []),
        (Outcome(stalled=True), []),
        (Outcome(requeue_after=30), [("ai/a", 30)]),
        (Retryable("later"), [("ai/a", 0.5)]),
        (Retryable("later", after=9), [("ai/a", 9)]),
        (Rejected("no"), [("ai/a", 0.5)]),
        (ValueError("a bug"), [("ai/a", 0.5)]),
    ],
    ids=str,
)
async def test_when_a_key_comes_back(end: Outcome | Exception, delays: list[tuple[str, float]]) -> None:
    queue, reconciler = Queue(), Reconciler(end, Outcome())
    queue.add("ai/a")
    queue.add("ai/b")
    async with asyncio.timeout(5):
        await work(queue, reconciler)
    assert reconciler.keys == ["ai/a", "ai/b"]  # whatever happened to the first
    assert queue.delays == delays


async def test_other_keys_that_a_reconcile_names_are_worked_on_at_once() -> None:
    queue, reconciler = Queue(), Reconciler(Outcome(also=("ai/b", "ai/c")), Outcome(), Outcome())
    queue.add("claim/ai/ec")
    async with asyncio.timeout(5):
        await work(queue, reconciler)
    assert reconciler.keys == ["claim/ai/ec", "ai/b", "ai/c"]
