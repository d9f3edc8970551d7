from __future__ import annotations

import asyncio

import pytest

from epd.proxy.errors import OverloadedError, UnavailableError
from epd.proxy.health import FIRST_EJECTION_SECONDS, State
from epd.proxy.record import Trail
from epd.proxy.transport import Cause
from unit.proxy.engines import member, settle
from unit.proxy.queues import Queue


async def test_new_engines_are_used_at_once() -> None:
    q = Queue(member("d0"))
    q.load.begin("d0")
    for request in "abc":
        q.arrive(request)
    await settle()
    q.members.replace([member("d0"), member("d1"), member("d2")])
    await settle()
    assert sorted(one.partition("@")[2] for one in q.let_in) == ["d1", "d2"]
    assert ([one[0] for one in q.let_in], q.admission.waiting) == (["a", "b"], 1)


async def test_who_has_no_engine_left_is_told() -> None:
    q = Queue(member("d0"), member("d9", "q"))
    q.load.begin("d0")
    q.load.begin("d9")
    for request, pairing in (("a", "p"), ("b", "q"), ("c", "p")):
        q.arrive(request, request, pairing)
    await settle()
    q.members.replace([member("d9", "q")])
    await settle()
    assert (q.let_in, q.admission.waiting) == (["a@None", "c@None"], 1)
    assert q.load.counts() == {"d0": 1, "d9": 1}


async def test_who_waits_behind_others_is_told_too() -> None:
    q = Queue(member("d0"), member("d9", "q"))
    q.load.begin("d0")
    q.load.begin("d9")
    for request, pairing in (("a", "p"), ("b", "q"), ("c", "p"), ("d", "q")):
        q.arrive(request, "one client", pairing)
    await settle()
    q.members.replace([member("d0")])
    await settle()
    assert (q.let_in, q.admission.waiting) == (["b@None", "d@None"], 2)
    q.members.replace([])
    await settle()
    assert (q.let_in[2:], q.admission.waiting, q.admission._queues) == (["a@None", "c@None"], 0, {})


async def test_an_engine_that_is_no_longer_ejected_has_room() -> None:
    q = Queue(member("d0"), member("d1"), bound=2)
    q.load.begin("d0", 2)
    q.health.failed("d1", Cause.REFUSED)
    waits = [q.arrive(request) for request in "abc"]
    await settle()
    assert q.let_in == []
    q.now = FIRST_EJECTION_SECONDS
    # nobody's request ends, and no engine comes
    await asyncio.wait_for(waits[0], 10)
    # a trial is one request
    assert (q.let_in, q.admission.waiting, q.health.state("d1")) == (["a@d1"], 2, State.HALF_OPEN)
    q.health.succeeded("d1")
    await asyncio.wait_for(waits[1], 10)
    assert (q.let_in, q.admission.waiting) == (["a@d1", "b@d1"], 1)
    waits[2].cancel()
    await settle()
    # nothing looks for room where nobody waits
    assert (q.admission.waiting, q.admission._look_timer) == (0, None)


async def test_a_full_queue_refuses() -> None:
    q = Queue(member("d0"), limit=1)
    q.load.begin("d0")
    task = q.arrive("a")
    await settle()
    for refused in (q.arrive("b"), q.arrive("c", "another client")):
        with pytest.raises(OverloadedError) as caught:
            await refused
        assert (caught.value.status, caught.value.error_code) == (429, "queue_full")
        assert caught.value.headers()["retry-after"]
    task.cancel()
    none = Queue(member("d0"), limit=0)
    with pytest.raises(OverloadedError):
        none.admission.check("")


async def test_a_full_queue_takes_from_who_has_most_for_who_has_fewer() -> None:
    q = Queue(member("d0"), limit=4)
    q.load.begin("d0")
    tasks = {name: q.arrive(name, name[0]) for name in ("a1", "a2", "a3", "a4")}
    await settle()
    with pytest.raises(OverloadedError):
        q.admission.check("a")
    for name in ("b1", "b2"):
        q.admission.check("b")
        tasks[name] = q.arrive(name, "b")
        await settle()
    assert [name for name, task in tasks.items() if task.done()] == ["a3", "a4"]
    assert [type(tasks[name].exception()) for name in ("a3", "a4")] == [OverloadedError] * 2
    # from here on it would only be the other way around
    for client in "ab":
        with pytest.raises(OverloadedError):
            q.admission.check(client)
    assert q.admission.waiting == 4
    for _ in range(4):
        q.load.end("d0")
        await settle()
    assert q.let_in == ["a1@d0", "b1@d0", "a2@d0", "b2@d0"]
    assert (q.admission.waiting, q.load.counts(), q.admission._queues) == (0, {"d0": 1}, {})


async def test_queues_for_one_engine_count_for_their_client() -> None:
    q = Queue(member("d0"), member("d1"), limit=3)
    for name in ("d0", "d1"):
        q.load.begin(name)
    engines = {engine.name: engine for engine in q.rotation.answering()}
    waits = [asyncio.create_task(q.admission.room_at(engines[name], "a", Trail())) for name in ("d0", "d0", "d1")]
    await settle()
    other = q.arrive("b1", "b")
    await settle()
    assert [wait.done() for wait in waits] == [False, True, False]
    assert isinstance(waits[1].exception(), OverloadedError)
    assert (q.admission.waiting, other.done()) == (3, False)
    for task in (waits[0], waits[2], other):
        task.cancel()
    await settle()
    assert (q.admission.waiting, q.admission._queues, q.load.on_end) == (0, {}, None)


async def test_a_wait_has_an_end() -> None:
    q = Queue(member("d0"), seconds=0.01)
    q.load.begin("d0")
    with pytest.raises(UnavailableError) as caught:
        await q.arrive("a")
    assert (caught.value.status, caught.value.error_code) == (503, "queue_timeout")
    assert caught.value.headers()["retry-after"]
    [wait] = q.trail.waits
    assert (wait.code, wait.ended - wait.begun >= 10_000_000) == ("queue_timeout", True)
    assert (q.admission.waiting, q.load.on_end, q.waited()) == (0, None, 1)
    q.load.end("d0")
    assert q.load.counts() == {}


@pytest.mark.parametrize("left", ["before", "with"])
async def test_a_client_that_leaves_takes_no_place(left: str) -> None:
    q = Queue(member("d0"))
    q.load.begin("d0")
    gone, next_one = q.arrive("a"), q.arrive("b")
    await settle()
    if left == "before":
        gone.cancel()
        q.load.end("d0")
    else:
        # it was let in, and leaves before it knows
        q.load.end("d0")
        gone.cancel()
    await settle()
    assert gone.cancelled()
    assert next_one.done()
    assert (q.let_in, q.admission.waiting, q.load.counts()) == (["b@d0"], 0, {"d0": 1})
