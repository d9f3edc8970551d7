"""The scheduler's half in an encoder: what it still holds is checked, and written again where it is gone."""

from __future__ import annotations

from .scripted import TOKENS, Scripted, request


def test_an_encoder_waits_for_the_check_of_what_it_still_holds():
    s = Scripted(producer=True, consumer=False)
    first, second = request("a", "red"), request("b", "red")
    assert s.side.ensure(first, 0)
    assert not s.side.has("red")
    s.side.allocated(first, 0)
    s.side.plan(TOKENS, ())
    assert not s.side.ensure(second, 0)
    s.pool.run()
    assert s.side.ensure(second, 0)
    assert s.side.plan(0, ()).republish == ()
    assert s.side.plan(TOKENS, ()).republish == ("red",)
    assert s.side.plan(TOKENS, ()).republish == ()


def test_an_encoder_writes_nothing_again_that_is_there():
    s = Scripted(producer=True, consumer=False)
    s.disk.add("red")
    first, second = request("a", "red"), request("b", "red")
    s.side.ensure(first, 0)
    s.side.allocated(first, 0)
    s.side.ensure(second, 0)
    s.pool.run()
    assert s.side.ensure(second, 0)
    assert s.side.plan(TOKENS, ()).republish == ()


def test_an_encoder_does_not_wait_long_for_a_check():
    s = Scripted(producer=True, consumer=False)
    first, second = request("a", "red"), request("b", "red")
    s.side.ensure(first, 0)
    s.side.allocated(first, 0)
    s.side.ensure(second, 0)
    s.pool.hang()
    s.now += 0.3
    assert s.side.ensure(second, 0)
    assert s.side.missing(second) == {"red"}  # and while that check hangs it asks for nothing more
    assert len(s.pool.tasks) == 1
