from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from epd.collector.asking import Brief
from epd.collector.inputs import Claim, Liveness, Policy
from epd.collector.loop import LOST_SECONDS, QUIET_SECONDS, STUCK_SECONDS, Loop
from epd.collector.policy import InForce
from epd.collector.result import PassResult
from epd.collector.seen import Root
from unit.collector.test_report import POLICY

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


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


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
    given, collects, own = asks or Asks(), Collects(), Clock()
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


def test_the_first_pass_is_made_at_once_by_claim_and_policy() -> None:
    with running() as run:
        assert run.collects.begins()
        assert run.collects.given == [(CLAIM, POLICY)]
        run.collects.end()
        until(lambda: run.loop.view().tally.passes == 1)
        assert run.loop.view().in_force == BRIEF.in_force


def test_passes_follow_at_the_interval() -> None:
    with running(interval=0.001) as run:
        for _ in range(3):
            assert run.collects.begins()
            run.collects.end()


def test_work_that_is_left_is_gone_on_with_at_once() -> None:
    with running() as run:
        assert run.collects.begins()
        run.collects.end(PassResult(more=True, removed_entries=1))
        assert run.collects.begins()
        run.collects.end()
        until(lambda: run.loop.view().tally.passes == 1)
        assert len(run.collects.given) == 2


def test_work_that_is_left_and_does_not_move_is_tried_once_more_and_waits() -> None:
    with running() as run:
        for _ in range(2):
            assert run.collects.begins()
            run.collects.end(PassResult(more=True))
        until(lambda: run.loop.running is None and run.loop.view().tally.latest is not None)
        assert len(run.collects.given) == 2


def test_a_long_pass_is_followed_by_a_pause_as_long() -> None:
    with running(interval=0.001) as run:
        assert run.collects.begins()
        run.clock.now += 1000
        run.collects.end()
        until(lambda: run.loop.running is None)
        assert not run.collects.begun.acquire(timeout=0.05)


def test_a_crossing_of_the_high_watermark_begins_a_pass_once() -> None:
    share = [0.85]
    looks = threading.Semaphore(0)

    def usage() -> float:
        looks.release()
        return share[0]

    with running(usage=usage) as run:
        assert run.collects.begins()
        run.collects.end()
        until(lambda: run.loop.running is None)
        share[0] = 0.851
        assert run.collects.begins()
        run.collects.end(STILL_HIGH)
        until(lambda: run.loop.running is None)
        for _ in range(20):
            assert looks.acquire(timeout=PATIENCE)
        assert len(run.collects.given) == 2, "it stays high, and was told"
        share[0] = 0.5
        until(lambda: not run.loop._looked.high)
        share[0] = 0.9
        assert run.collects.begins()


def test_a_volume_that_is_filled_again_before_a_look_sees_it_low_has_crossed_again() -> None:
    share = [0.5]
    with running(usage=lambda: share[0]) as run:
        assert run.collects.begins()
        share[0] = 0.9
        for _ in range(3):
            run.collects.end(DONE)
            assert run.collects.begins(), "the pass before this one ended below the watermark"
        run.collects.end(STILL_HIGH)
        until(lambda: run.loop.running is None)
        assert not run.collects.begun.acquire(timeout=0.05), "the last one could not free enough"


def test_a_root_that_is_not_ours_was_not_seen_below_the_watermark() -> None:
    share = [0.5]
    with running(usage=lambda: share[0]) as run:
        assert run.collects.begins()
        share[0] = 0.9
        until(lambda: run.loop._looked.high)
        run.collects.end(PassResult())
        assert run.collects.begins(), "for the crossing"
        run.collects.end(PassResult())
        until(lambda: run.loop.running is None)
        assert not run.collects.begun.acquire(timeout=0.05)


def test_a_crossing_during_a_pass_is_not_lost() -> None:
    share = [0.5]
    with running(usage=lambda: share[0]) as run:
        assert run.collects.begins()
        share[0] = 0.9
        until(lambda: run.loop._looked.high)
        run.collects.end()
        assert run.collects.begins()


def test_time_above_the_watermark_is_counted() -> None:
    share = [0.9]
    run = Loop(
        root=Root(claim="ec"), asks=Asks(), collects=Collects(), usage=lambda: share[0], clock=(clock := Clock())
    )
    for now in (100, 105, 110):
        clock.now = now
        run.look()
    share[0] = 0.5
    clock.now = 115
    run.look()
    clock.now = 120
    run.look()
    assert run.over_high == 10


def test_a_pass_that_breaks_off_is_told_and_the_next_one_is_made() -> None:
    with running(interval=0.001) as run:
        assert run.collects.begins()
        run.collects.end(ValueError("a defect"))
        assert run.collects.begins()
        assert run.loop.view().failure == "ValueError: a defect"
        assert run.loop.view().tally.failures == 1
        run.collects.end()
        until(lambda: run.loop.view().failure == "")
        assert run.loop.unhealthy() == ""


def test_without_a_claim_no_pass_is_made() -> None:
    asks = Asks(Brief(claim=None, in_force=InForce()))
    with running(asks=asks, interval=0.001) as run:
        until(lambda: run.loop.view().claim_missing)
        asks.brief = BRIEF
        assert run.collects.begins()
        assert len(run.collects.given) == 1


def test_an_api_server_that_is_down_does_not_make_the_claim_missing() -> None:
    asks = Asks(Brief(claim=None, in_force=InForce(), problem="HTTP 503"))
    with running(asks=asks) as run:
        until(lambda: run.loop._brief is asks.brief)
        assert not run.loop.view().claim_missing


def test_it_answers_while_the_volume_hangs() -> None:
    """Both threads hang in a call; a restart would not help for an hour."""
    released = threading.Event()

    def hanging() -> float:
        released.wait()
        return 0.5

    with running(usage=hanging) as run:
        assert run.collects.begins()
        assert run.loop.view().silent is None
        run.clock.now += 1000
        until(lambda: run.loop._ticked == run.clock.now)
        assert run.loop.view().silent == 100
        assert run.loop.running == 1000
        assert run.loop.unhealthy() == run.loop.unready() == ""
        run.clock.now += LOST_SECONDS
        until(lambda: run.loop._ticked == run.clock.now)
        assert run.loop.unhealthy() == "the pass under way has shown no sign of life for 4600 s"
        assert run.loop.stopping() is False
        assert run.loop.unhealthy() == "", "a question of the pass is a sign of life"
        released.set()


def test_a_pass_that_hangs_is_told_although_usage_can_be_read() -> None:
    """As on a frozen file system: reads go on, writes hang."""
    with running() as run:
        assert run.collects.begins()
        run.clock.now += QUIET_SECONDS
        until(lambda: run.loop._looked.at == run.clock.now)
        assert run.loop.view().silent is None
        run.clock.now += 1
        until(lambda: run.loop._looked.at == run.clock.now)
        assert run.loop.view().silent == 100
        run.collects.end()
        until(lambda: run.loop.running is None)
        assert run.loop.view().silent is None


def test_usage_that_cannot_be_read_is_silence() -> None:
    def failing() -> float:
        raise OSError("stale handle")

    with running(usage=failing) as run:
        run.clock.now += 1000
        assert run.loop.view().silent == 100


def test_a_main_thread_that_is_stuck_is_unhealthy() -> None:
    clock = Clock()
    loop = Loop(root=Root(claim="ec"), asks=Asks(), collects=Collects(), usage=lambda: 0, clock=clock, poll=5)
    clock.now += STUCK_SECONDS + 5
    assert loop.unhealthy() == ""
    clock.now += 1
    assert loop.unhealthy() == "the main thread has not moved for 66 s"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_of_passes_that_ended_is_unhealthy() -> None:
    class Ends(Asks):
        def begin(self) -> Brief:
            raise SystemExit

    with running(asks=Ends()) as run:
        until(lambda: run.loop.unhealthy() == "the thread that makes passes has ended")


def test_a_stop_is_told_to_the_pass_and_waits_for_it() -> None:
    with running() as run:
        assert run.collects.begins()
        run.loop.stop()
        assert run.loop.stopping()
        assert run.loop.unready() == "stopping"
        assert run.loop.unhealthy() == ""
        assert run.ended == []
        run.collects.end()
        run.thread.join(PATIENCE)
        assert run.ended == [True]
        assert len(run.collects.given) == 1


def test_a_stop_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epd.collector.loop.STOP_SECONDS", 0.01)
    with running() as run:
        assert run.collects.begins()
        run.loop.stop()
        run.thread.join(PATIENCE)
        assert run.ended == [False]
