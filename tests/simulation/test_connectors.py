from __future__ import annotations

from typing import Any

from epd.api import names
from epd.controller import kinds
from epd.manifests import config_map_of
from simulation.world import SPEC, NextBuild, World, parent, with_spec

NEXT = NextBuild(operator_image="epd-operator:2")


async def ready(spec: dict[str, Any] = SPEC) -> World:
    world = World()
    world.cluster.put(parent(spec))
    await world.converge()
    return world


def sources(world: World) -> set[str]:
    return set(world.cluster.all(kinds.CONFIG_MAP))


def mounted(world: World) -> set[str | None]:
    pods = world.cluster.all(kinds.POD).values()
    return {config_map_of(p["spec"]) for p in pods if names.LABEL_ROLE in p["metadata"]["labels"]}


async def test_an_upgrade_brings_its_connector_and_leaves_pods_with_theirs() -> None:
    world = await ready()
    (old,) = sources(world)
    engines = world.engines()
    world.start(NEXT)
    await world.converge()
    assert world.engines() == engines
    assert mounted(world) == {old}
    assert len(sources(world)) == 2
    before = world.cluster.writes
    await world.resync()
    assert world.cluster.writes == before


async def test_a_kept_rendering_keeps_its_connector_and_the_last_one_lets_it_go() -> None:
    world = await ready()
    (old,) = sources(world)
    world.start(NEXT)
    world.set_spec(with_spec(restartedAt="1"))
    await world.converge()
    (new,) = sources(world) - {old}
    assert mounted(world) == {new}
    assert sources(world) == {old, new}  # the history could be taken up again
    for number in range(2, 12):
        world.set_spec(with_spec(restartedAt=str(number)))
        await world.converge()
    assert sources(world) == {new}


async def test_pods_and_scaled_replica_sets_keep_a_connector() -> None:
    world = await ready()
    (old,) = sources(world)
    template = world.cluster.all(kinds.DEPLOYMENT)["qwen-encode"]["spec"]["template"]
    metadata = {"name": "qwen-encode-old", "namespace": "ai", "labels": template["metadata"]["labels"]}
    old_set = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata}
    world.cluster.put({**old_set, "spec": {"replicas": 1, "template": template}})
    example = with_spec(encoderCache={**SPEC["encoderCache"], "connector": "Example"})
    for revision in list(world.cluster.all(kinds.CONTROLLER_REVISION)):
        world.cluster.remove(kinds.CONTROLLER_REVISION, "ai", revision)
    world.set_spec(example)
    await world.converge()
    for revision, obj in list(world.cluster.all(kinds.CONTROLLER_REVISION).items()):
        if config_map_of(obj["data"]["template"]["spec"]):
            world.cluster.remove(kinds.CONTROLLER_REVISION, "ai", revision)
    await world.converge()
    assert sources(world) == {old}
    world.cluster.put({**old_set, "spec": {"replicas": 0, "template": template}})
    await world.converge()
    assert sources(world) == set()


async def test_pods_that_mount_a_connector_keep_it() -> None:
    world = await ready()
    (old,) = sources(world)
    world.start(NEXT)
    world.set_spec(with_spec(encoderCache={**SPEC["encoderCache"], "connector": "Example"}))
    for revision in list(world.cluster.all(kinds.CONTROLLER_REVISION)):
        world.cluster.remove(kinds.CONTROLLER_REVISION, "ai", revision)
    await world.reconcile()
    await world.reconcile()
    assert sources(world) == {old}  # the old pods still run
    await world.converge()
    assert sources(world) == set()


async def test_a_kept_rendering_without_its_connector_is_replaced() -> None:
    world = await ready()
    (old,) = sources(world)
    world.start(NEXT)
    await world.converge()
    world.cluster.remove(kinds.CONFIG_MAP, "ai", old)
    await world.converge()
    (new,) = sources(world)
    assert mounted(world) == {new}
    assert new != old
    assert world.condition("Ready") == ("True", "AllReady")
