"""The scheduler's half: loads from the step they go with until their copy is given back."""

from __future__ import annotations

from .scripted import TOKENS, Scripted, request


def test_a_hit_is_loaded_and_released_when_its_step_is_accounted():
    s = Scripted()
    load = s.publish("red")
    one = request("a", "red")
    assert s.side.ensure(one, 0) is False
    s.pool.run()
    assert s.side.ensure(one, 0) is True
    assert s.side.has("red")
    s.side.allocated(one, 0)
    step = s.side.plan(TOKENS, ())
    assert (step.number, step.loads) == (1, (load,))
    assert s.side.plan(TOKENS, ()).loads == ()
    assert (s.side.held, s.released()) == (1, [])
    s.side.account()
    assert (s.side.held, s.released()) == (0, ["/copies/red"])
    counts = s.side.stats()
    assert counts == {"hits": 1, "loads": 1, "loaded_bytes": 64, "load_seconds": [0.01], "held": 0}


def test_a_later_step_accounted_says_nothing_of_an_earlier_one_that_was_not():
    s = Scripted()
    s.publish("red")
    one = request("a", "red")
    s.side.ensure(one, 0)
    s.pool.run()
    s.side.plan(0, ())
    s.side.ensure(one, 0)
    s.side.allocated(one, 0)
    assert s.side.plan(TOKENS, ()).number == 2
    s.side.account()  # of step 1
    assert s.side.held == 1
    s.side.account()
    assert s.side.held == 0


def test_workers_words_make_good_for_steps_that_were_never_accounted():
    s = Scripted()
    s.publish("red")
    one = request("a", "red")
    s.side.ensure(one, 0)
    for _ in range(5):
        s.side.plan(0, ())
    s.pool.run()
    s.side.ensure(one, 0)
    s.side.allocated(one, 0)
    step = s.side.plan(TOKENS, ())
    s.side.acknowledge(step.number - 1, ())
    assert s.side.held == 1
    s.side.acknowledge(step.number, ())
    assert s.side.held == 0


def test_loads_wait_for_a_step_with_tokens():
    s = Scripted()
    load = s.publish("red")
    one = request("a", "red")
    s.allocate(one)
    assert s.side.plan(0, ()).loads == ()
    s.side.account()
    assert s.side.held == 1
    assert s.side.plan(TOKENS, ()).loads == (load,)
    s.side.account()
    assert s.side.held == 0


def test_an_abort_between_allocation_and_step_leaves_the_load_its_copy():
    s = Scripted()
    load = s.publish("red")
    one = request("a", "red", pixels=False)
    s.allocate(one)
    s.side.finished(one)
    assert s.side.plan(TOKENS, ()).loads == (load,)
    assert s.side.held == 1
    s.side.account()
    assert s.side.held == 0


def test_without_pixels_an_item_is_held_until_its_request_ends():
    s = Scripted()
    s.publish("red")
    one = request("a", "red", pixels=False)
    s.allocate(one)
    s.side.plan(TOKENS, ())
    s.side.account()
    assert s.side.ensure(one, 500)
    assert s.side.held == 1
    assert s.side.ensure(one, 0)  # preempted
    assert s.side.has("red")
    s.side.finished(one)
    assert (s.side.held, s.released()) == (0, ["/copies/red"])


def test_with_pixels_an_item_that_a_prefix_covers_is_let_go():
    s = Scripted()
    s.publish("red")
    one = request("a", "red")
    s.side.ensure(one, 0)
    s.pool.run()
    s.side.ensure(one, 0)
    assert s.side.held == 1
    assert s.side.ensure(one, 500)
    assert s.side.held == 0


def test_a_load_that_failed_spoils_the_item_until_it_is_loaded_again():
    s = Scripted()
    s.publish("red")
    one, other = request("a", "red"), request("b", "blue")
    s.side.ensure(one, 0)
    s.side.ensure(other, 0)
    s.pool.run()
    s.side.ensure(one, 0)
    s.side.allocated(one, 0)
    step = s.side.plan(TOKENS, ())
    s.side.account()
    s.side.acknowledge(step.number, {"red"})
    assert s.side.account() == {"a"}
    s.side.finished(one)
    lost = s.finder.entries.pop(("red", 4))
    late = request("c", "red")
    assert not s.side.ensure(late, 0)
    s.pool.run()
    assert not s.side.ensure(late, 0)
    assert s.side.account() == {"c"}
    s.side.finished(late)
    s.finder.entries["red", 4] = lost
    mended = request("d", "red")
    s.side.ensure(mended, 0)
    s.pool.run()
    assert s.side.ensure(mended, 0)  # to vLLM a local hit: it asks neither has() nor for a load
    assert s.side.plan(TOKENS, ()).loads == (lost.load,)
    s.side.account()
    assert s.side.ensure(mended, 500)
    assert s.side.held == 0
    assert s.side.ensure(request("e", "red"), 0)


def test_a_spoilt_item_that_was_evicted_is_as_good_as_any():
    s = Scripted()
    one = request("a", "red")
    s.side.ensure(one, 0)
    s.side.acknowledge(0, {"red"})
    s.side.plan(TOKENS, ("red",))
    s.pool.run()
    assert s.side.ensure(one, 0)
