"""Where the collector of a claim runs, and since when."""

from __future__ import annotations

from epd.api import names
from epd.controller import kinds
from simulation.world import World, parent, report
from simulation.worlds import CLAIM, COLLECTOR, brought, claim, collectors, shared


async def test_no_collector_before_an_engine_pod_has_a_node_and_the_claim_is_bound() -> None:
    world = World()
    world.cluster.put(claim())
    world.cluster.put(parent(brought()))
    await world.resync()
    world.cluster.set_status(world.cluster.all(kinds.PERSISTENT_VOLUME_CLAIM)["shared"], {"phase": "Bound"})
    await world.resync()
    assert collectors(world) == {}
    assert world.condition("EncoderCacheHealthy") == ("Unknown", "Pending")
    world.controllers()  # pods are made and have nodes
    world.cluster.set_status(world.cluster.all(kinds.PERSISTENT_VOLUME_CLAIM)["shared"], {"phase": "Pending"})
    await world.resync()
    assert collectors(world) == {}
    world.cluster.set_status(world.cluster.all(kinds.PERSISTENT_VOLUME_CLAIM)["shared"], {"phase": "Bound"})
    outcome = await world.reconcile()
    assert outcome.also == (CLAIM,)  # a claim that was brought sends no event
    await world.reconcile(CLAIM)
    assert collectors(world) == {COLLECTOR: ["qwen"]}


def made_for(world: World) -> str | None:
    template = world.cluster.all(kinds.DEPLOYMENT)[COLLECTOR]["spec"]["template"]
    node = template["metadata"]["annotations"].get(names.ANNOTATION_NODE)
    return None if node is None else str(node)


def engines_are_on(world: World, node: str) -> None:
    for pod in world.cluster.all(kinds.POD).values():
        if names.LABEL_ROLE in pod["metadata"]["labels"]:
            world.cluster.put({**pod, "spec": {**pod["spec"], "nodeName": node}})


async def test_the_collector_of_a_volume_of_one_node_goes_where_its_engines_went() -> None:
    world = World()
    world.report = report("shared")
    world.cluster.put(claim(modes=("ReadWriteOnce",)))
    world.cluster.put(parent(brought()))
    await world.converge()
    assert made_for(world) == "n1"
    world.set_spec({**brought(), "suspend": True})
    await world.converge()
    assert made_for(world) == "n1"  # nothing tells of another
    world.set_spec(brought())
    await world.converge()
    engines_are_on(world, "n2")
    assert (await world.reconcile()).also == (CLAIM,)
    await world.converge()
    assert made_for(world) == "n2"
    before = world.cluster.writes
    await world.resync()
    assert world.cluster.writes == before


async def test_the_collector_of_a_volume_of_many_nodes_is_moved_by_nobody() -> None:
    world = await shared(brought())
    engines_are_on(world, "n2")
    await world.resync()
    assert made_for(world) is None


async def test_the_collector_stays_while_its_users_sleep() -> None:
    world = await shared(brought())
    world.set_spec({**brought(), "suspend": True})
    await world.converge()
    assert collectors(world) == {COLLECTOR: ["qwen"]}
    assert world.condition("Ready") == ("True", "Suspended")
