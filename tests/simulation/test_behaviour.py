"""What happens around one EPDDeployment at rest: drift, pause, words of the API server, and what is told of it."""

from __future__ import annotations

from typing import Any

import pytest

from epd.api import names
from epd.controller import errors, kinds
from epd.controller.kinds import Kind
from simulation.api import SimulatedCluster
from simulation.world import SPEC, World, parent, with_spec
from simulation.worlds import ENCODE, events, ready

# --- drift


@pytest.mark.parametrize(
    ("kind", "name", "path", "value"),
    [
        (kinds.DEPLOYMENT, ENCODE, ("spec", "replicas"), 9),
        (kinds.DEPLOYMENT, ENCODE, ("spec", "template", "spec", "containers"), []),
        (kinds.DEPLOYMENT, "qwen-proxy", ("metadata", "labels", names.LABEL_PART_OF), None),
        (kinds.SERVICE, "qwen", ("spec", "selector"), {"app": "evil"}),
        (kinds.ROLE, "qwen-proxy", ("rules",), []),
        (kinds.PERSISTENT_VOLUME_CLAIM, "qwen-encoder-cache", ("metadata", "ownerReferences"), None),
    ],
)
async def test_what_somebody_changes_in_our_fields_is_healed(kind: Kind, name: str, path: Any, value: Any) -> None:
    world = await ready()
    before = world.children()
    world.cluster.edit(kind, name, path, value)
    assert world.children() != before or path[-1] == "ownerReferences"
    await world.converge()
    assert world.children() == before
    assert world.cluster.all(kind)[name]["metadata"]["ownerReferences"][0]["kind"] == names.KIND


async def test_fields_of_others_survive() -> None:
    world = await ready()
    world.cluster.edit(kinds.DEPLOYMENT, ENCODE, ("metadata", "annotations", "team"), "vision")
    world.cluster.edit(kinds.SERVICE, "qwen", ("spec", "clusterIP"), "10.0.0.7", manager="allocator")
    world.set_spec(with_spec(encode={"replicas": 1}))
    await world.converge()
    assert world.cluster.all(kinds.DEPLOYMENT)[ENCODE]["metadata"]["annotations"]["team"] == "vision"
    assert world.cluster.all(kinds.SERVICE)["qwen"]["spec"]["clusterIP"] == "10.0.0.7"


@pytest.mark.parametrize("kind", [kind for kind in kinds.CHILDREN if kind != kinds.PERSISTENT_VOLUME_CLAIM])
async def test_what_somebody_deletes_comes_back(kind: Kind) -> None:
    world = await ready()
    before = world.children()
    for name in world.cluster.all(kind):
        world.cluster.remove(kind, "ai", name)
    await world.converge()
    assert world.children() == before


# --- pause, problems, events


async def test_paused_children_are_left_alone_and_status_goes_on() -> None:
    world = await ready()
    world.set_spec(with_spec(paused=True))
    await world.converge()
    assert world.condition("Ready") == ("True", "AllReady")
    before = world.children()
    world.set_spec(with_spec(paused=True, encode={"replicas": 9}))
    await world.converge()
    assert world.children() == before
    assert world.condition("Ready") == ("False", "Paused")
    assert world.status["observedGeneration"] == world.cluster.all(kinds.EPD)["qwen"]["metadata"]["generation"]


@pytest.mark.parametrize(
    "proxy", [{"timeouts": {"encode": "3m"}}, {"service": {"port": 8080}}, {"service": {"type": "NodePort"}}]
)
async def test_of_a_paused_object_the_proxy_differs_too(proxy: dict[str, Any]) -> None:
    world = await ready()
    world.set_spec(with_spec(paused=True, proxy=proxy))
    await world.converge()
    assert world.condition("Ready") == ("False", "Paused")
    world.set_spec(with_spec(paused=True))
    await world.converge()
    assert world.condition("Ready") == ("True", "AllReady")


async def test_words_of_the_api_server_stall_once() -> None:
    world = await ready()
    typo = {"image": SPEC["engine"]["image"], "podTemplate": {"spec": {"tolerationz": []}}}
    world.set_spec(with_spec(engine=typo))
    await world.reconcile()
    for _ in range(3):
        world.controllers()
        await world.reconcile()
    assert world.condition("Stalled") == ("True", "RejectedByAPIServer")
    stalled = next(c for c in world.status["conditions"] if c["type"] == "Stalled")
    assert ".spec.template.spec.tolerationz: field not declared" in stalled["message"]
    assert ("Warning", "RejectedByAPIServer", 1) in events(world)
    world.set_spec(SPEC)
    await world.converge()
    assert world.condition("Stalled")[0] == "False"
    assert world.condition("Ready") == ("True", "AllReady")


async def test_an_owned_flag_stalls_and_touches_nothing() -> None:
    world = await ready()
    before = world.children()
    engine = {"image": SPEC["engine"]["image"], "args": ["--ec-transfer-conf={}"]}
    world.set_spec(with_spec(engine=engine))
    await world.converge()
    assert world.condition("Stalled") == ("True", "OwnedField")
    assert world.children() == before


async def test_an_unreadable_object_stalls() -> None:
    world = World()
    world.cluster.put(parent({"model": {"name": "x"}}))
    await world.reconcile()
    assert world.condition("Stalled") == ("True", "InvalidSpec")
    assert world.condition("Ready") == ("False", "InvalidSpec")


async def test_a_missing_right_is_named_and_the_rest_goes_on() -> None:
    def fault(_number: int, call: Any) -> None:
        if call.verb == "patch" and call.kind == kinds.ROLE_BINDING:
            raise errors.Forbidden('PATCH rolebindings: User "op" cannot patch resource "rolebindings"')

    world = World(SimulatedCluster(before=fault))
    world.cluster.put(parent())
    with pytest.raises(errors.Retryable):
        await world.reconcile()
    assert ENCODE in world.cluster.all(kinds.DEPLOYMENT)
    assert world.condition("Ready") == ("False", "Retrying")
    assert 'cannot patch resource "rolebindings"' in str(world.status["conditions"])
    assert ("Warning", "Retrying", 1) in events(world)


async def test_milestones_are_told_once() -> None:
    world = await ready()
    await world.reconcile()
    assert events(world) == [("Normal", "AllReady", 1), ("Normal", "Serving", 1)]


async def test_the_same_event_again_counts_up_also_after_a_restart() -> None:
    world = await ready()
    for _ in range(2):
        world.set_spec(with_spec(suspend=True))
        await world.converge()
        world.start()
        world.set_spec(SPEC)
        await world.converge()
    assert ("Normal", "Suspended", 2) in events(world)
    assert ("Normal", "AllReady", 3) in events(world)


async def test_ready_is_never_true_for_a_generation_that_is_not_applied() -> None:
    world = await ready()
    for spec in (with_spec(restartedAt="1"), with_spec(encode={"replicas": 4}), with_spec(encode=None), SPEC):
        world.set_spec(spec)
        await world.reconcile()
        assert world.status["observedGeneration"] == world.cluster.all(kinds.EPD)["qwen"]["metadata"]["generation"]
        rolled = spec.get("encode") is not None or spec.get("restartedAt") is not None
        # Taking a role away changes the other one's pods too: its EC role becomes ec_both.
        assert world.condition("Ready")[0] == ("False" if rolled or spec.get("encode") is None else "True")
        assert world.condition("Reconciling")[0] == "True"
        assert {c["observedGeneration"] for c in world.status["conditions"]} == {world.status["observedGeneration"]}
        await world.converge()
        assert world.condition("Ready")[0] == "True"


async def test_conditions_keep_their_times_while_their_status_does() -> None:
    world = await ready()
    times = {c["type"]: c["lastTransitionTime"] for c in world.status["conditions"]}
    world.set_spec(with_spec(restartedAt="1"))
    await world.converge()
    after = {c["type"]: c["lastTransitionTime"] for c in world.status["conditions"]}
    assert after["Available"] == times["Available"]
    assert after["Stalled"] == times["Stalled"]
    assert after["Ready"] > times["Ready"]
