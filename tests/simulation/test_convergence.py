from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epd.controller import errors, kinds
from epd.controller.keys import keys_of
from epd.controller.kinds import Kind, Manifest
from simulation.api import Call, Crashed, SimulatedCluster
from simulation.world import SPEC, World, parent, with_spec

VOLUME = {"persistentVolumeClaim": {"claimName": "brought"}}
SPECS: dict[str, dict[str, Any]] = {
    "base": SPEC,
    "other model": with_spec(model={"name": "Qwen/Qwen2.5-VL-7B-Instruct"}),
    "more pods": with_spec(encode={"replicas": 4}, prefillDecode={"replicas": 1}),
    "aggregated": with_spec(encode=None),
    "scaled": with_spec(encode={"scaling": {"mode": "External"}}),
    "suspended": with_spec(suspend=True),
    "retained": with_spec(encoderCache={**SPEC["encoderCache"], "reclaimPolicy": "Retain"}),
    "restarted": with_spec(restartedAt="2026-01-01"),
    "no proxy": with_spec(proxy={"replicas": 0}),
    "brought claim": with_spec(encoderCache={"volume": VOLUME}),
}


async def fresh(spec: dict[str, Any]) -> World:
    world = World()
    world.cluster.put(parent(spec))
    world.cluster.put(brought())
    await world.converge()
    return world


def brought() -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "brought", "namespace": "ai"},
        "spec": {"accessModes": ["ReadWriteMany"]},
    }


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
async def test_comes_to_rest_ready_and_then_writes_nothing(spec: dict[str, Any]) -> None:
    world = await fresh(spec)
    assert world.condition("Ready")[0] == "True"
    before = world.cluster.writes, world.cluster.version
    await world.resync()
    await world.resync()
    assert (world.cluster.writes, world.cluster.version) == before


async def test_a_second_reconcile_does_not_even_ask_to_write() -> None:
    world = await fresh(SPEC)
    world.cluster.calls.clear()
    await world.resync()
    assert {call.verb for call in world.cluster.calls} == {"get", "list"}


async def test_a_restart_costs_one_apply_per_child_that_changes_nothing() -> None:
    world = await fresh(SPEC)
    world.start()
    world.cluster.calls.clear()
    await world.resync()
    applies = [call for call in world.cluster.calls if call.verb == "patch"]
    assert len(applies) == len([m for m in world.children() if not m.endswith("/brought") and not m.startswith("Job/")])
    assert world.cluster.writes == 0


async def _crash_everywhere(start: World, wanted: World, moment: str) -> int:
    """Crash before or after the n-th write on the way from `start`, for each n; returns how many writes there were.

    A crash at a read leaves the cluster as one before the next write does.
    """
    for point in itertools.count(1):
        writes, crashed = 0, False

        def fault(_number: int, call: Call, point: int = point) -> None:
            nonlocal writes, crashed
            writes += call.verb in {"create", "delete", "patch"}
            if writes == point and not crashed:
                crashed = True
                raise Crashed

        world = start.copy(**{moment: fault})
        try:
            await world.converge()
        except Crashed:
            world.start()
            await world.converge()
        assert world.children() == wanted.children(), f"crash {moment} write {point}"
        assert world.shown() == wanted.shown()
        if not crashed:
            return point
    raise AssertionError("unreachable")


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_crash_at_any_write_while_it_is_made(moment: str) -> None:
    start = World()
    start.cluster.put(parent())
    start.cluster.put(brought())
    assert await _crash_everywhere(start, await fresh(SPEC), moment) > 20


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("then", ["other model", "aggregated", "scaled", "suspended", "brought claim"])
async def test_a_crash_at_any_write_while_it_is_changed(then: str, moment: str) -> None:
    start = await fresh(SPEC)
    start.set_spec(SPECS[then])
    wanted = start.copy()
    await wanted.converge()
    assert await _crash_everywhere(start, wanted, moment) > 15


@pytest.mark.parametrize(
    "error",
    [
        errors.Conflict("409"),
        errors.Retryable("429", after=1.0),
        errors.Retryable("500"),
        errors.Retryable("timeout"),
        errors.NotFound("404"),
        errors.Forbidden("403"),
    ],
    ids=lambda error: str(error),
)
async def test_failing_calls_delay_and_damage_nothing(error: errors.ClusterError) -> None:
    wanted = (await fresh(SPECS["other model"])).children()
    chance = random.Random(1)

    def fault(_number: int, call: Call) -> None:
        # 404 and 403 only on writes: to a read, "not found" is an answer.
        if chance.random() < 0.1 and (
            call.verb == "patch" or not isinstance(error, errors.NotFound | errors.Forbidden)
        ):
            raise error

    world = World(SimulatedCluster(before=fault))
    world.cluster.put(parent(SPEC))
    world.cluster.put(brought())
    await world.converge(rounds=200)
    world.set_spec(SPECS["other model"])
    await world.converge(rounds=200)
    world.cluster.before = lambda _number, _call: None
    await world.converge()
    assert world.children() == wanted
    assert world.condition("Ready") == ("True", "AllReady")


@pytest.mark.parametrize("age", [1, 2, 5, 20])
async def test_stale_lists_delete_nothing_wanted_and_make_nothing_twice(age: int) -> None:
    world = World(SimulatedCluster(stale_by=lambda call: age if call.kind in kinds.CHILDREN else 0))
    world.cluster.put(parent(SPEC))
    for _ in range(10):
        with contextlib.suppress(errors.ClusterError):
            await world.reconcile()
        world.controllers()
    assert not [c for c in world.cluster.calls if c.verb == "delete" and c.wrote]
    world.cluster.stale_by = lambda _call: 0
    await world.converge()
    assert world.children() == {k: v for k, v in (await fresh(SPEC)).children().items() if not k.endswith("/brought")}


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(sorted(SPECS)), min_size=1, max_size=5))
def test_any_way_to_a_spec_ends_where_the_straight_way_ends(path: list[str]) -> None:
    async def walk() -> None:
        world = await fresh(SPECS["base"])
        for name in path:
            world.set_spec(SPECS[name])
            await world.converge()
        straight = await fresh(SPECS[path[-1]])
        assert _comparable(world, path) == _comparable(straight, path)
        assert _conditions(world) == _conditions(straight)

    asyncio.run(walk())


def _comparable(world: World, path: list[str]) -> dict[str, Any]:
    children = world.children()
    # Check and collector of the claim stay once they were made; suspended from the start there is no pod that they
    # could follow.
    children = {name: child for name, child in children.items() if not name.startswith("Job/")}
    if path[-1] == "suspended":
        children = {name: child for name, child in children.items() if not name.endswith("-collector")}
    if "retained" in path or "brought claim" in path:
        # A claim under Retain is left where it is: that is the point of it.
        children.pop("PersistentVolumeClaim/qwen-encoder-cache", None)
    if "scaled" in path and (encode := children.get("Deployment/qwen-encode")):
        # Who scales keeps the number it had; fresh starts with the API server's default.
        encode["spec"] = {key: value for key, value in encode["spec"].items() if key != "replicas"}
    return children


def _conditions(world: World) -> dict[str, str]:
    # Whether the claim was checked, and has a collector, differs as those do.
    stored = {"StorageReady", "EncoderCacheHealthy"}
    return {c["type"]: c["status"] for c in world.status["conditions"] if c["type"] not in stored}


@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.randoms(use_true_random=False))
def test_lost_doubled_and_reordered_events_are_made_good_by_the_resync(chance: random.Random) -> None:
    async def run() -> None:
        pending: list[str] = []

        def on_event(kind: Kind, obj: Manifest) -> None:
            for key in keys_of(kind, obj):
                pending.extend([key] * chance.choice([0, 0, 1, 1, 2]))

        world = World(SimulatedCluster(on_event=on_event))
        world.cluster.put(parent(SPEC))
        for _ in range(15):
            world.set_spec(SPECS[chance.choice(["base", "other model", "more pods", "aggregated"])])
            if chance.random() < 0.5:
                world.controllers()
            while pending and chance.random() < 0.7:
                await world.reconcile(pending.pop(chance.randrange(len(pending))))
        last = world.cluster.all(kinds.EPD)["qwen"]["spec"]
        await world.converge()  # the resync
        wanted = await fresh(last)
        wanted.cluster.remove(kinds.PERSISTENT_VOLUME_CLAIM, "ai", "brought")
        assert world.children() == wanted.children()
        assert world.shown() == wanted.shown()

    asyncio.run(run())
