"""An object that deletes its entries: it is held until they are gone, whatever crashes meanwhile."""

from __future__ import annotations

import itertools

import pytest

from epd.api import names
from epd.api.collection import VersionReport, VersionState
from epd.controller import kinds
from simulation.api import Call, Crashed
from simulation.reclaiming import MINE, finalizers, gone, look, reclaiming, stored, told
from simulation.world import SPEC, World, parent, report, with_spec
from simulation.worlds import CLAIM, COLLECTOR, shared


async def test_the_finalizer_is_there_before_the_first_child_and_only_when_it_is_needed() -> None:
    world = World()
    world.cluster.put(parent(reclaiming()))
    await world.reconcile()
    writes = [(call.verb, call.kind) for call in world.cluster.calls if call.wrote]
    assert writes[0] == ("patch", kinds.EPD)
    assert finalizers(world) == [names.FINALIZER_ENCODER_CACHE]
    for spec in (with_spec(), reclaiming(reclaimPolicy="Retain"), with_spec(encoderCache=None)):
        other = World()
        other.cluster.put(parent(spec))
        await other.reconcile()
        assert finalizers(other) == []


async def test_it_goes_when_the_policy_changes_and_others_stay() -> None:
    world = await shared(reclaiming())
    live = world.cluster.all(kinds.EPD)["qwen"]
    held = [*finalizers(world), "backup.example.com/keep"]
    world.cluster.put({**live, "metadata": {**live["metadata"], "finalizers": held}})
    world.set_spec(reclaiming(reclaimPolicy="Retain"))
    await world.converge()
    assert finalizers(world) == ["backup.example.com/keep"]


async def test_roles_go_to_zero_the_collector_stays_and_the_entries_go_first() -> None:
    world = await shared(reclaiming())
    stored(world)
    world.delete("qwen")
    await world.resync()
    replicas = {n: d["spec"]["replicas"] for n, d in world.cluster.all(kinds.DEPLOYMENT).items()}
    assert (replicas["qwen-encode"], replicas["qwen-prefilldecode"]) == (0, 0)
    assert (replicas[COLLECTOR], replicas["qwen-proxy"]) == (1, 2)
    assert world.condition("Ready") == ("False", "Reclaiming")
    world.controllers()  # the engines end
    await look(world)
    stored(world, passes=3)
    await look(world)
    assert not gone(world)
    assert "(3Gi)" in str(world.status["conditions"])
    before = world.cluster.writes
    await look(world)
    assert world.cluster.writes == before  # it waits and writes nothing
    world.report = report("shared", passes=4)
    await look(world)
    assert gone(world)
    assert [reason for reason, _ in told(world)] == ["Reclaiming", "Reclaimed"]
    assert told(world)[1][1].startswith(f"the entries of {MINE}")
    assert told(world)[1][1].endswith("are gone from shared")
    assert "shared" in world.cluster.all(kinds.PERSISTENT_VOLUME_CLAIM)
    await world.reconcile(CLAIM)
    assert COLLECTOR not in world.cluster.all(kinds.DEPLOYMENT)


async def test_a_pass_from_before_the_engines_were_gone_proves_nothing() -> None:
    world = await shared(reclaiming())
    world.delete("qwen")
    await world.resync()
    world.controllers()
    await look(world)  # the report has nothing, and is as old as the engines
    assert not gone(world)
    world.report = report("shared", passes=2)
    await look(world)
    assert gone(world)


async def test_a_collector_that_starts_anew_counts_from_zero() -> None:
    world = await shared(reclaiming())
    stored(world, passes=40)
    world.delete("qwen")
    await look(world)
    await look(world)
    world.report = report("shared", passes=1)
    await look(world)
    assert not gone(world)
    world.report = report("shared", passes=2)
    await look(world)
    assert gone(world)


async def test_versions_of_others_are_not_waited_for() -> None:
    world = await shared(reclaiming(), reclaiming())
    stored(world, "b")
    world.delete("qwen")
    await look(world)
    await look(world)
    stored(world, "b", passes=3)
    await look(world)
    assert gone(world)
    assert "kept, since others use them: v1-" in told(world)[-1][1]
    await world.reconcile(CLAIM)
    assert COLLECTOR in world.cluster.all(kinds.DEPLOYMENT)


async def test_what_only_grace_keeps_is_named_when_the_last_user_goes() -> None:
    world = await shared(reclaiming())
    older = VersionReport(name="v1-old-0123456789ab", state=VersionState.CONDEMNED, used_bytes=1 << 20)
    world.report = report("shared", versions=(older,), passes=2)
    world.delete("qwen")
    await look(world)
    await look(world)
    world.report = report("shared", versions=(older,), passes=3)
    await look(world)
    assert gone(world)
    assert told(world)[-1][1].endswith("left, since unused for less than versionGracePeriod: v1-old-0123456789ab (1Mi)")


async def test_deleted_in_the_foreground_the_collector_has_no_owner_that_takes_it_along() -> None:
    world = await shared(reclaiming(), reclaiming())
    stored(world)
    world.delete("qwen", finalizers=("foregroundDeletion",))
    await world.resync()
    owners = world.cluster.all(kinds.DEPLOYMENT)[COLLECTOR]["metadata"]["ownerReferences"]
    assert [owner["name"] for owner in owners] == ["b"]


async def test_a_claim_from_a_template_that_is_brought_now_is_not_deleted() -> None:
    world = World()
    world.cluster.put(parent(SPEC))
    await world.converge()
    volume = {"persistentVolumeClaim": {"claimName": "qwen-encoder-cache"}}
    world.set_spec({**with_spec(encoderCache={"volume": volume, "reclaimPolicy": "Delete"}), "suspend": True})
    await world.converge()
    assert "qwen-encoder-cache" in world.cluster.all(kinds.PERSISTENT_VOLUME_CLAIM)


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_crash_at_any_write_while_it_goes(moment: str) -> None:
    points = 0
    for point in itertools.count(1):
        world = await shared(reclaiming())
        stored(world)
        world.delete("qwen")
        writes, crashed = 0, False

        def fault(_number: int, call: Call, point: int = point) -> None:
            nonlocal writes, crashed
            writes += call.verb in {"create", "delete", "patch"}
            if writes == point and not crashed:
                crashed = True
                raise Crashed

        setattr(world.cluster, moment, fault)
        for passes in range(3, 8):
            if not gone(world) and passes == 3:
                stored(world, passes=passes)
            else:
                world.report = report("shared", passes=passes)
            try:
                await look(world)
            except Crashed:
                world.start()  # how many passes there had been is forgotten, and another one is waited for
        assert gone(world), f"crash {moment} write {point}"
        assert "shared" in world.cluster.all(kinds.PERSISTENT_VOLUME_CLAIM)
        assert COLLECTOR not in world.cluster.all(kinds.DEPLOYMENT)
        if not crashed:
            points = point
            break
    assert points > 7
