"""The scheduler's half: hits, misses, and what is stamped and given back."""

from __future__ import annotations

import pytest

from .scripted import TOKENS, Scripted, request


def test_an_abort_while_the_search_runs_gives_back_what_it_finds():
    s = Scripted()
    s.publish("red")
    one = request("a", "red")
    s.side.ensure(one, 0)
    s.pool.hang()
    s.side.finished(one)
    s.pool.run()
    assert (s.finder.released, s.side.held) == (["/copies/red"], 0)


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
    s.allocate(one)
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


def test_use_is_stamped_once_per_interval_also_while_decoding():
    s = Scripted()
    one = request("a", "red", "blue")
    s.side.ensure(one, 500)
    s.side.ensure(one, 501)
    assert s.upkeep.stamped == ["red", "blue"]
    s.now += 100
    s.side.ensure(one, 502)
    assert s.upkeep.stamped == ["red", "blue"] * 2


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
