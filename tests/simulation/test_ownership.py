"""Names that are taken, children of others and of earlier objects, and what goes with its owner."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from epd.controller import errors, kinds
from simulation.api import SimulatedCluster
from simulation.world import SPEC, World, parent, with_spec
from simulation.worlds import ENCODE, events, ready


async def test_a_taken_name_is_not_taken_over() -> None:
    world = World()
    theirs = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "qwen", "namespace": "ai"}, "spec": {"a": 1}}
    stored = copy.deepcopy(world.cluster.put(theirs))
    world.cluster.put(parent())
    outcome = await world.reconcile()
    assert outcome.stalled
    assert world.condition("Stalled") == ("True", "NameTaken")
    assert world.condition("Ready") == ("False", "NameTaken")
    assert world.condition("Reconciling")[0] == "False"
    assert world.cluster.all(kinds.SERVICE)["qwen"] == stored
    assert not world.cluster.all(kinds.DEPLOYMENT)
    message = next(c["message"] for c in world.status["conditions"] if c["type"] == "Stalled")
    assert message == (
        "Service ai/qwen exists and belongs to nobody; nothing is applied. Delete it, or rename the EPDDeployment."
    )
    for _ in range(3):
        await world.reconcile()
    assert events(world) == [("Warning", "NameTaken", 1)]
    world.cluster.remove(kinds.SERVICE, "ai", "qwen")
    await world.converge()
    assert world.condition("Ready") == ("True", "AllReady")


async def test_children_of_an_earlier_object_of_the_name_are_waited_for() -> None:
    world = await ready()
    old = [obj for (kind, _, _), obj in world.cluster.objects.items() if kind in kinds.CHILDREN]
    world.cluster.remove(kinds.EPD, "ai", "qwen")
    assert not world.cluster.all(kinds.DEPLOYMENT)
    for obj in old:
        world.cluster.put(obj)  # the garbage collector has not come to them yet
    world.cluster.put(parent())
    with pytest.raises(errors.Retryable, match="of an earlier EPDDeployment is still being collected"):
        await world.reconcile()
    assert "status" not in world.cluster.all(kinds.EPD)["qwen"]


async def test_a_claim_under_retain_outlives_the_object_and_is_taken_up_again() -> None:
    spec = with_spec(encoderCache={**SPEC["encoderCache"], "reclaimPolicy": "Retain"})
    world = await ready(spec)
    claim = world.cluster.all(kinds.PERSISTENT_VOLUME_CLAIM)["qwen-encoder-cache"]["metadata"]["uid"]
    world.cluster.remove(kinds.EPD, "ai", "qwen")
    assert [k for k in kinds.CHILDREN if world.cluster.all(k)] == [kinds.PERSISTENT_VOLUME_CLAIM]
    world.cluster.put(parent(spec))
    await world.converge()
    assert world.condition("Ready") == ("True", "AllReady")
    assert world.cluster.all(kinds.PERSISTENT_VOLUME_CLAIM)["qwen-encoder-cache"]["metadata"]["uid"] == claim


async def test_a_role_that_goes_takes_its_children_and_condition_with_it() -> None:
    world = await ready()
    world.set_spec(with_spec(encode=None))
    await world.converge()
    assert ENCODE not in world.cluster.all(kinds.DEPLOYMENT)
    assert not [name for name in world.cluster.all(kinds.CONTROLLER_REVISION) if name.startswith(ENCODE)]
    assert "EncodeReady" not in [c["type"] for c in world.status["conditions"]]
    assert world.status["roleSummary"] == "3PD"


async def test_a_claim_that_the_spec_drops_goes_only_after_its_last_pod() -> None:
    world = await ready()
    brought = {"metadata": {"name": "b", "namespace": "ai"}, "spec": {"accessModes": ["ReadWriteMany"]}}
    world.cluster.put({"apiVersion": "v1", "kind": "PersistentVolumeClaim", **brought})
    world.set_spec(with_spec(encoderCache={"volume": {"persistentVolumeClaim": {"claimName": "b"}}}))
    await world.reconcile()
    assert "qwen-encoder-cache" in world.cluster.all(kinds.PERSISTENT_VOLUME_CLAIM)
    await world.converge()
    assert list(world.cluster.all(kinds.PERSISTENT_VOLUME_CLAIM)) == ["b"]


async def test_an_object_being_deleted_is_left_alone_and_one_that_is_gone_forgotten() -> None:
    world = await ready()
    live = world.cluster.all(kinds.EPD)["qwen"]
    world.cluster.put({**live, "metadata": {**live["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    world.cluster.calls.clear()
    await world.reconcile()
    assert [c.verb for c in world.cluster.calls] == ["get"]
    world.cluster.remove(kinds.EPD, "ai", "qwen")
    assert not any(world.cluster.all(kind) for kind in kinds.CHILDREN)
    await world.reconcile()
    assert not any(world.cluster.all(kind) for kind in kinds.CHILDREN)


async def test_a_terminating_namespace_ends_it_quietly() -> None:
    body = {"message": "ns", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}

    def fault(_number: int, call: Any) -> None:
        if call.verb == "patch":
            raise errors.error_of(status=403, body=body, call="PATCH")

    world = World(SimulatedCluster(before=fault))
    world.cluster.put(parent())
    assert not (await world.reconcile()).stalled
    assert not world.cluster.all(kinds.EVENT)
