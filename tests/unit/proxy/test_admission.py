from __future__ import annotations

import asyncio

import pytest

from epd.proxy.admission import Admission
from epd.proxy.errors import OverloadedError, UnavailableError
from epd.proxy.health import FIRST_EJECTION_SECONDS, Health, State
from epd.proxy.metrics import Metrics
from epd.proxy.pods import Member, Members
from epd.proxy.record import Trail
from epd.proxy.rotation import Rotation
from epd.proxy.routing import InFlight
from epd.proxy.transport import Cause
from unit.proxy.engines import member, settle


class Queue:
    """An admission to engines with room for one request each, or for `bound`. `now` is what engines' health goes by."""

    def __init__(self, *members: Member, limit: int = 16, seconds: float = 60, bound: int = 1) -> None:
        self.members, self.load = Members(), InFlight()
        self.members.replace(members)
        self.now = 0.0
        self.health = Health(self.members, on_ejected=[].append, clock=lambda: self.now)
        self.rotation = Rotation(members=self.members, load=self.load, health=self.health, bound=bound)
        self.metrics = Metrics(namespace="", epd="")
        self.admission = Admission(rotation=self.rotation, limit=limit, seconds=seconds, metrics=self.metrics)
        self.let_in: list[str] = []
        self.trail = Trail()

    def arrive(self, request: str, client: str = "", pairing: str | None = None) -> asyncio.Task[None]:
        return asyncio.create_task(self._request(request, client, pairing))

    async def _request(self, request: str, client: str, pairing: str | None) -> None:
        engine = await self.admission.wait(
            client,
            lambda bounded: self.rotation.prefill(request, pairing=pairing, bounded=bounded),
            self.trail,
            only=pairing or "",
        )
        if engine is not None:
            self.load.begin(engine.name)
        self.let_in.append(f"{request}@{engine.name if engine else None}")

    def arrive_at(self, engine: str, request: str, client: str) -> asyncio.Task[None]:
        """A request comes that only `engine` can answer."""
        return asyncio.create_task(self._request_at(engine, request, client))

    async def _request_at(self, engine: str, request: str, client: str) -> None:
        [wanted] = [one for one in self.rotation.answering() if one.name == engine]
        placed = await self.admission.room_at(wanted, client, self.trail)
        assert placed == wanted
        self.load.begin(engine)
        self.let_in.append(f"{request}@{engine}")

    def waited(self) -> float | None:
        return self.metrics.registry.get_sample_value("epd_proxy_queue_seconds_count", {"namespace": "", "epd": ""})


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
