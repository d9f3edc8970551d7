"""Objects on one claim, and the collector that they share."""

from __future__ import annotations

from typing import Any

import pytest

from epd.api import names
from epd.controller import errors, kinds
from epd.controller.keys import keys_of
from simulation.api import SimulatedCluster
from simulation.world import World, parent, report, with_spec
from simulation.worlds import CLAIM, COLLECTOR, brought, claim, collectors, shared, with_collection


async def test_one_collector_for_all_users_with_all_owners_and_no_controller() -> None:
    world = await shared(brought(), brought())
    assert collectors(world) == {COLLECTOR: ["qwen", "b"]}
    for kind in (kinds.DEPLOYMENT, kinds.SERVICE_ACCOUNT, kinds.ROLE, kinds.ROLE_BINDING):
        owners = world.cluster.all(kind)[COLLECTOR]["metadata"]["ownerReferences"]
        assert [(o["name"], o["controller"]) for o in owners] == [("qwen", False), ("b", False)]
    assert world.condition("EncoderCacheHealthy") == ("True", "Healthy")
    before = world.cluster.writes, world.cluster.version
    await world.resync()
    await world.resync()
    assert (world.cluster.writes, world.cluster.version) == before


async def test_a_user_that_comes_joins_and_one_that_goes_leaves() -> None:
    world = await shared(brought())
    pod = set(world.cluster.all(kinds.POD))
    world.cluster.put(parent(brought(), name="b"))
    await world.converge()
    assert collectors(world) == {COLLECTOR: ["qwen", "b"]}
    world.cluster.remove(kinds.EPD, "ai", "qwen")  # the garbage collector of the simulation takes every dependent
    await world.reconcile(CLAIM)
    assert collectors(world) == {COLLECTOR: ["b"]}
    assert {p for p in pod if p.startswith("shared-")}


async def test_users_of_two_directories_have_two_collectors() -> None:
    world = await shared(brought(subPath="a"), brought(subPath="b"), brought())
    assert collectors(world) == {
        names.collector("shared", "a"): ["qwen"], names.collector("shared", "b"): ["b"], COLLECTOR: ["c"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "left"),
    [
        (with_spec(), {"qwen-encoder-cache-collector": ["qwen"]}),
        (with_collection(enabled=False), {}),
        (brought(subPath="x"), {names.collector("shared", "x"): ["qwen"]}),
    ],
    ids=["another claim", "disabled", "another directory"],
)
async def test_a_collector_without_users_goes(spec: dict[str, Any], left: dict[str, list[str]]) -> None:
    world = await shared(brought())
    world.set_spec(spec)
    await world.reconcile(CLAIM)
    await world.converge()
    assert collectors(world) == left
    remaining = {name for kind in (kinds.SERVICE_ACCOUNT, kinds.ROLE) for name in world.cluster.all(kind)}
    assert {name for name in remaining if "collector" in name} == set(left)


async def test_one_user_that_disables_collection_leaves_the_collector_to_the_other() -> None:
    world = await shared(with_collection(enabled=False), brought())
    assert collectors(world) == {COLLECTOR: ["qwen", "b"]}


async def test_a_restart_between_changing_the_claim_and_pruning_loses_nothing() -> None:
    world = await shared(brought())
    world.set_spec(with_spec())
    for _ in range(4):
        await world.reconcile()  # status names the new claim; the old one's key was lost with the process
        world.controllers()
    world.start()
    await world.converge()  # the watches deliver the old collector, which names its claim
    assert collectors(world) == {"qwen-encoder-cache-collector": ["qwen"]}


async def test_a_name_that_a_stranger_has_is_not_taken_over() -> None:
    world = World()
    world.report = report("shared")
    world.cluster.put(claim())
    theirs = world.cluster.put(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": COLLECTOR, "namespace": "ai"},
         "spec": {"replicas": 0, "template": {"metadata": {"labels": {}}, "spec": {}}}}
    )  # fmt: skip
    world.cluster.put(parent(brought()))
    await world.converge()
    outcome = await world.reconcile(CLAIM)
    assert (outcome.stalled, outcome.requeue_after) == (True, 30.0)
    assert world.cluster.all(kinds.DEPLOYMENT)[COLLECTOR]["spec"] == theirs["spec"]
    assert COLLECTOR not in world.cluster.all(kinds.ROLE)
    assert world.condition("EncoderCacheHealthy") == ("False", "NameTaken")
    assert world.condition("Available")[0] == "True"
    assert world.condition("Ready") == ("False", "NameTaken")
    world.start()  # a new process sees it for itself
    await world.reconcile()
    assert world.condition("EncoderCacheHealthy") == ("False", "NameTaken")
    world.cluster.remove(kinds.DEPLOYMENT, "ai", COLLECTOR)
    await world.converge()
    assert world.condition("EncoderCacheHealthy") == ("True", "Healthy")
    assert collectors(world) == {COLLECTOR: ["qwen"]}


async def test_a_template_that_is_refused_reaches_no_collector() -> None:
    world = await shared(brought())
    before = world.cluster.all(kinds.DEPLOYMENT)[COLLECTOR]["spec"]["template"]
    template = {"spec": {"containers": [{"name": "collector", "image": "another", "args": ["--root=/"]}]}}
    world.cluster.put(parent(with_collection(podTemplate=template), name="b"))
    await world.converge()
    assert collectors(world) == {COLLECTOR: ["qwen", "b"]}
    assert world.cluster.all(kinds.DEPLOYMENT)[COLLECTOR]["spec"]["template"] == before
    assert world.condition("EncoderCacheHealthy") == ("True", "Healthy")
    stalled = next(c for c in world.cluster.all(kinds.EPD)["b"]["status"]["conditions"] if c["type"] == "Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "OwnedField")


async def test_a_missing_right_is_retried_and_told() -> None:
    def fault(_number: int, call: Any) -> None:
        if call.verb == "patch" and call.kind == kinds.ROLE and call.name == COLLECTOR:
            raise errors.Forbidden("PATCH roles: no")

    world = World(SimulatedCluster(before=fault))
    world.cluster.put(claim())
    world.cluster.put(parent(brought()))
    for _ in range(4):
        await world.reconcile()
        world.controllers()
    with pytest.raises(errors.Retryable, match="PATCH roles: no"):
        await world.reconcile(CLAIM)
    assert collectors(world) == {COLLECTOR: ["qwen"]}  # the rest went on
    await world.reconcile()
    assert world.condition("EncoderCacheHealthy") == ("False", "Retrying")


async def test_an_object_that_cannot_be_parsed_keeps_its_collector() -> None:
    world = await shared(brought())
    live = world.cluster.all(kinds.EPD)["qwen"]
    world.cluster.put({**live, "spec": {**live["spec"], "engine": 3}})
    await world.reconcile(CLAIM)
    assert COLLECTOR in collectors(world)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "replicas"), 3),
        (("metadata", "labels"), None),
        (("metadata", "ownerReferences"), None),
        (("spec", "template", "spec", "containers"), []),
    ],
)
async def test_drift_of_a_collector_is_healed(path: tuple[str, ...], value: Any) -> None:
    world = await shared(brought())
    before = world.children()
    owners = world.cluster.all(kinds.DEPLOYMENT)[COLLECTOR]["metadata"]["ownerReferences"]
    world.cluster.edit(kinds.DEPLOYMENT, COLLECTOR, path, value)
    await world.reconcile(CLAIM)
    assert world.children() == before
    assert world.cluster.all(kinds.DEPLOYMENT)[COLLECTOR]["metadata"]["ownerReferences"] == owners


async def test_whatever_is_made_has_the_label_that_watches_select_and_leads_to_a_key() -> None:
    world = await shared(brought())
    made = [(kind, obj) for (kind, _, _), obj in world.cluster.objects.items() if kind in (*kinds.CHILDREN, kinds.POD)]
    ours = [(kind, obj) for kind, obj in made if obj["metadata"]["name"] != "shared"]
    assert {obj["metadata"]["labels"].get(names.LABEL_MANAGED_BY) for _, obj in ours} == {names.FIELD_MANAGER}
    assert {key for kind, obj in ours for key in keys_of(kind, obj)} == {"ai/qwen", CLAIM}
