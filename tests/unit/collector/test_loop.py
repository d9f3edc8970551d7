"""When passes are made, and by what."""

from __future__ import annotations

import threading

from epd.collector.asking import Brief
from epd.collector.loop import Loop
from epd.collector.policy import InForce
from epd.collector.result import PassResult
from epd.collector.seen import Root
from unit.clocks import Clock
from unit.collector.running import BRIEF, CLAIM, DONE, PATIENCE, STILL_HIGH, Asks, Collects, running, until
from unit.collector.tree import POLICY


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
