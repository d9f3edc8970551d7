from __future__ import annotations

import pytest

from .scripted import Scripted, request

TOKENS = 10


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
    s.side.ensure(one, 0)
    s.pool.run()
    s.side.ensure(one, 0)
    s.side.allocated(one, 0)
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
    s.side.ensure(one, 0)
    s.pool.run()
    s.side.ensure(one, 0)
    s.side.allocated(one, 0)
    s.side.finished(one)
    assert s.side.plan(TOKENS, ()).loads == (load,)
    assert s.side.held == 1
    s.side.account()
    assert s.side.held == 0


def test_an_abort_while_the_search_runs_gives_back_what_it_finds():
    s = Scripted()
    s.publish("red")
    one = request("a", "red")
    s.side.ensure(one, 0)
    s.pool.hang()
    s.side.finished(one)
    s.pool.run()
    assert (s.finder.released, s.side.held) == (["/copies/red"], 0)


def test_without_pixels_an_item_is_held_until_its_request_ends():
    s = Scripted()
    s.publish("red")
    one = request("a", "red", pixels=False)
    s.side.ensure(one, 0)
    s.pool.run()
    s.side.ensure(one, 0)
    s.side.allocated(one, 0)
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


@pytest.mark.parametrize("pixels", [True, False])
def test_who_comes_while_a_search_runs_or_a_copy_is_held_asks_no_more(pixels):
    s = Scripted()
    s.publish("red")
    first, second, third = (request(name, "red", pixels=pixels) for name in "abc")
    s.side.ensure(first, 0)
    s.side.ensure(second, 0)
    s.pool.run()
    assert s.side.ensure(first, 0)
    assert s.side.ensure(second, 0)
    assert s.side.ensure(third, 0)
    assert s.finder.asked == [(("red", 4), False)]
    assert s.side.stats()["hits"] == 3
    for one in (first, second, third):
        s.side.finished(one)
    assert s.side.held == 0


def test_a_miss_stands_for_the_attempt_and_not_for_long():
    s = Scripted()
    one = request("a", "red")
    s.side.ensure(one, 0)
    s.pool.run()
    assert s.side.ensure(one, 0)
    assert not s.side.has("red")
    s.now += 4
    assert s.side.ensure(one, 0)
    s.now += 2
    assert not s.side.ensure(one, 0)  # asked again
    s.publish("red")
    s.pool.run()
    assert s.side.ensure(one, 0)
    assert s.side.has("red")


def test_an_encoding_ends_the_attempt():
    s = Scripted()
    one = request("a", "red")
    s.side.ensure(one, 0)
    s.pool.run()
    s.side.ensure(one, 0)
    s.side.allocated(one, 0)
    assert s.side.ensure(one, 0)  # in the local cache
    s.side.plan(TOKENS, ("red",))
    assert not s.side.ensure(one, 0)  # evicted and preempted: asked again
    assert s.side.stats() == {"misses": 1, "local_encodes": 1, "held": 0}


def test_without_pixels_a_miss_fails_the_request_each_time_it_is_asked_about():
    s = Scripted()
    lost, other = request("a", "red", pixels=False), request("b", "blue")
    s.side.ensure(lost, 0)
    s.side.ensure(other, 0)
    s.pool.run()
    assert not s.side.ensure(lost, 0)
    assert s.side.ensure(other, 0)
    assert s.side.account() == {"a"}
    assert s.side.account() == set()
    assert not s.side.ensure(lost, 0)  # asynchronous scheduling asks once more before the failure is through
    s.side.finished(lost)
    assert s.side.account() == set()


def test_the_deadline_makes_a_search_a_miss_and_its_late_copy_goes_back():
    s = Scripted()
    s.publish("red")
    one = request("a", "red")
    s.side.ensure(one, 0)
    s.pool.hang()
    s.now += 5.1
    assert s.side.ensure(one, 0)
    assert not s.side.has("red")
    assert s.health.suspect
    s.pool.run()
    assert s.finder.released == ["/copies/red"]
    assert s.side.stats() == {"misses": 1, "rejects": {"timeout": 1}, "probe_timeouts": 1, "held": 0}


def test_waiting_for_a_thread_accuses_no_store():
    s = Scripted()
    one = request("a", "red")
    s.side.ensure(one, 0)
    s.now += 5.1
    assert s.side.ensure(one, 0)
    assert not s.health.suspect


def test_in_doubt_nothing_is_asked():
    s = Scripted()
    s.health.suspect = s.health.long = True
    assert s.side.ensure(request("a", "red"), 0)
    assert not s.side.ensure(request("b", "red", pixels=False), 0)
    assert (s.pool.tasks, s.side.account()) == ([], {"b"})


def test_in_doubt_that_may_pass_only_pixels_are_encoded():
    s = Scripted()
    s.publish("red")
    running, pixels, new = request("a", "red", pixels=False), request("b", "blue"), request("c", "red", pixels=False)
    s.side.ensure(running, 0)
    s.side.ensure(pixels, 0)
    s.pool.hang()
    s.health.suspect = True  # for another's slow entry
    assert [s.side.ensure(one, 0) for one in (running, pixels, new)] == [False, True, False]
    s.health.suspect = False
    s.pool.run()
    assert [s.side.ensure(one, 0) for one in (running, new)] == [True, True]
    assert s.side.account() == set()


def test_many_requests_at_once_fail_none_without_pixels():
    s = Scripted()
    s.publish("red")
    bare, pixels = request("a", "red", pixels=False), request("b", "blue")
    s.side.ensure(bare, 0)
    s.side.ensure(pixels, 0)
    s.now += 60  # all threads are busy with others
    assert [s.side.ensure(one, 0) for one in (bare, pixels)] == [False, True]
    s.health.suspect = s.health.long = True  # with none of them coming back
    assert [s.side.ensure(one, 0) for one in (bare, pixels)] == [False, True]
    assert s.side.account() == {"a"}


def test_a_large_entry_is_waited_for_only_without_pixels():
    s = Scripted()
    s.publish("red")
    bare, pixels = request("a", "red", pixels=False), request("b", "blue")
    s.side.ensure(bare, 0)
    s.side.ensure(pixels, 0)
    s.pool.hang()
    for _ in range(4):
        s.now += 2
        for task in s.pool.tasks:
            task.progressed()
    assert [s.side.ensure(one, 0) for one in (bare, pixels)] == [False, True]
    assert (s.side.account(), s.health.suspect) == (set(), False)
    s.now += 6
    assert not s.side.ensure(bare, 0)
    assert (s.side.account(), s.health.suspect) == ({"a"}, True)
    s.pool.run()


def test_what_a_search_found_for_a_request_that_went_is_not_released_by_the_engines_thread():
    s = Scripted()
    s.publish("red")
    one = request("a", "red")
    s.side.ensure(one, 0)
    s.pool.run()
    s.side.finished(one)
    assert s.finder.released == []
    s.pool.run()
    assert s.finder.released == ["/copies/red"]


def test_two_sizes_under_one_identifier_fail_their_request():
    s = Scripted()
    s.publish("red")
    one = request("a", "red", "red", pixels=False)
    one.mm_features[1].mm_position.get_num_embeds = lambda: 9
    assert not s.side.ensure(one, 0)
    assert (s.pool.tasks, s.side.account()) == ([], {"a"})
    assert s.side.ensure(one, 500)  # all of it in the prefix cache


def test_another_size_under_the_same_identifier_is_another_entry():
    s = Scripted()
    s.publish("red", rows=4)
    small, large = request("a", "red", pixels=False), request("b", "red", rows=9)
    s.side.ensure(small, 0)
    s.side.ensure(large, 0)
    s.pool.run()
    assert s.side.ensure(small, 0)
    assert s.side.has("red")
    assert s.side.ensure(large, 0)
    assert not s.side.has("red")


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


def test_no_room_is_waited_for_then_pixels_are_encoded_and_the_rest_is_pinned():
    from epd.connector.finder import Full

    s = Scripted()
    s.finder.entries[("red", 4)] = s.finder.entries[("blue", 4)] = Full()
    pixels, bare = request("a", "red"), request("b", "blue", pixels=False)
    for one in (pixels, bare):
        s.side.ensure(one, 0)
    s.pool.run()
    assert [s.side.ensure(one, 0) for one in (pixels, bare)] == [False, False]
    assert s.pool.tasks == []  # not at once
    s.now += 0.1
    s.side.plan(0, ())
    assert len(s.pool.tasks) == 2
    s.now += 5
    s.pool.run()
    assert [s.side.ensure(one, 0) for one in (pixels, bare)] == [True, False]
    s.now += 0.1
    s.publish("blue")
    s.side.ensure(bare, 0)
    s.pool.run()
    assert s.side.ensure(bare, 0)
    assert s.finder.asked[-1] == (("blue", 4), True)
    assert s.side.stats()["budget_full"] == 2


def test_room_that_comes_back_is_used():
    from epd.connector.finder import Full

    s = Scripted()
    s.finder.entries[("red", 4)] = Full()
    one = request("a", "red")
    s.side.ensure(one, 0)
    s.pool.run()
    s.side.ensure(one, 0)
    s.publish("red")
    s.now += 0.1
    s.side.ensure(one, 0)
    s.pool.run()
    assert s.side.ensure(one, 0)
    assert s.side.has("red")


def test_use_is_stamped_once_per_interval_also_while_decoding():
    s = Scripted()
    one = request("a", "red", "blue")
    s.side.ensure(one, 500)
    s.side.ensure(one, 501)
    assert s.upkeep.stamped == ["red", "blue"]
    s.now += 100
    s.side.ensure(one, 502)
    assert s.upkeep.stamped == ["red", "blue"] * 2


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


def test_in_the_end_everything_is_given_back():
    s = Scripted()
    s.publish("red")
    s.publish("blue")
    one = request("a", "red", "blue")
    s.side.ensure(one, 0)
    s.pool.tasks[0].run()
    s.side.plan(0, ())
    s.pool.hang()
    s.side.close()
    s.side.close()
    s.pool.run()
    assert sorted(s.released()) == ["/copies/blue", "/copies/red"]
