"""A loop whose volume hangs, whose threads end, or that is stopped: what it says of itself."""

from __future__ import annotations

import threading

import pytest

from epd.collector.asking import Brief
from epd.collector.loop import LOST_SECONDS, QUIET_SECONDS, STUCK_SECONDS, Loop
from epd.collector.seen import Root
from unit.clocks import Clock
from unit.collector.running import PATIENCE, Asks, Collects, running, until


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
