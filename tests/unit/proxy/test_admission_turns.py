from __future__ import annotations

import asyncio

from epd.proxy.pods import Member
from unit.proxy.engines import member, settle
from unit.proxy.queues import Queue


async def test_first_come_first_served() -> None:
    q = Queue(member("d0"))
    q.load.begin("d0")
    for request in "abc":
        q.arrive(request)
    await settle()
    assert (q.admission.waiting, q.let_in) == (3, [])
    for waiting in (2, 1, 0):
        q.load.end("d0")
        # the place is kept until who gets it has begun
        assert (q.load["d0"], q.admission.waiting) == (1, waiting)
        await settle()
        assert q.load["d0"] == 1
    assert q.let_in == ["a@d0", "b@d0", "c@d0"]
    assert (q.load.on_end, q.waited()) == (None, 3)
    assert [(wait.code, wait.begun <= wait.ended) for wait in q.trail.waits] == [("", True)] * 3


async def test_clients_take_turns() -> None:
    q = Queue(member("d0"))
    q.load.begin("d0")
    for request, client in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("c1", "c"), ("b2", "b")):
        q.arrive(request, client)
    await settle()
    for _ in range(6):
        q.load.end("d0")
        await settle()
    assert q.let_in == [f"{request}@d0" for request in ("a1", "b1", "c1", "a2", "b2", "a3")]


async def test_one_place_is_one_place() -> None:
    q = Queue(member("d0"), member("d1"))
    q.load.begin("d0")
    q.load.begin("d1")
    for request in "abc":
        q.arrive(request)
    await settle()
    q.load.end("d1")
    q.load.end("d0")
    await settle()
    assert (q.let_in, q.admission.waiting) == (["a@d1", "b@d0"], 1)


async def test_who_can_not_use_a_place_lets_others_by() -> None:
    q = Queue(member("d0"), member("d9", "q"))
    q.load.begin("d0")
    q.load.begin("d9")
    q.arrive("a", "a", "p")
    q.arrive("b", "b", "q")
    await settle()
    q.load.end("d9")
    await settle()
    assert (q.let_in, q.admission.waiting) == (["b@d9"], 1)


async def test_what_waits_for_one_pairing_does_not_hold_up_its_own_client() -> None:
    q = Queue(member("d0"), member("d9", "q"))
    q.load.begin("d0")
    q.load.begin("d9")
    for request, pairing in (("a", "p"), ("b", None), ("c", "q"), ("d", "p"), ("e", None)):
        q.arrive(request, "one client", pairing)
    await settle()
    for _ in range(3):
        q.load.end("d9")
        await settle()
    assert q.let_in == ["b@d9", "c@d9", "e@d9"]
    for _ in range(2):
        q.load.end("d0")
        await settle()
    assert (q.let_in[3:], q.admission._queues) == (["a@d0", "d@d0"], {})


async def test_one_clients_requests_are_let_in_as_they_came() -> None:
    q = Queue(member("d0"))
    q.load.begin("d0")
    for request, pairing in (("a", None), ("b", "p"), ("c", None), ("d", "p"), ("e", "p"), ("f", None)):
        q.arrive(request, "one client", pairing)
    await settle()
    for _ in range(6):
        q.load.end("d0")
        await settle()
    assert q.let_in == [f"{request}@d0" for request in "abcdef"]


async def test_looking_for_room_takes_no_longer_for_many_clients() -> None:
    q = Queue(member("d0"), member("d9", "q"), member("e0"), limit=100)
    q.load.begin("d0")
    q.load.begin("d9")
    looked: list[str | None] = []

    async def wait(client: str, pairing: str | None) -> None:
        def choose(bounded: bool) -> Member | None:
            looked.append(pairing)
            return q.rotation.prefill("r", pairing=pairing, bounded=bounded)

        engine = await q.admission.wait(client, choose, q.trail, only=pairing or "")
        assert engine is not None
        q.let_in.append(f"{client}@{engine.name}")

    waits = [asyncio.create_task(wait(f"c{n}", (None, "p", "q")[n % 3])) for n in range(90)]
    await settle()
    looked.clear()
    # whatever ends anywhere
    q.load.end("e0")
    assert looked == [None, "p", "q"]
    q.load.end("d9")
    await settle()
    assert q.let_in == ["c0@d9"]
    q.load.begin("d9")
    q.load.begin("d0")
    for task in waits:
        task.cancel()
    await settle()
    assert (q.admission.waiting, q.admission._queues) == (0, {})


async def test_who_waits_for_several_engines_has_one_turn() -> None:
    q = Queue(member("d0"), member("d1"))
    for name in ("d0", "d1"):
        q.load.begin(name)
    for name in ("d0", "d1"):
        q.arrive_at(name, f"a for {name}", "a")
    q.arrive("a for any", "a")
    for request in ("b1", "b2", "b3"):
        q.arrive(request, "b")
    await settle()
    for _ in range(4):
        q.load.end("d0")
        await settle()
    assert q.let_in == ["a for d0@d0", "b1@d0", "a for any@d0", "b2@d0"]
    q.load.end("d1")
    await settle()
    assert q.let_in[4:] == ["a for d1@d1"]
