"""The scheduler's half on a store that hangs, is full or is suspected: who waits, who encodes and who fails."""

from __future__ import annotations

from .scripted import Scripted, request


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
