from __future__ import annotations

import copy
from typing import Any

import pytest

from epd.api import names
from epd.controller import errors, kinds, permissions
from epd.controller.kinds import Kind, Manifest
from simulation.api import SimulatedCluster
from simulation.world import SPEC, NextBuild, World, parent, with_spec

ENCODE, PREFILL_DECODE = "qwen-encode", "qwen-prefilldecode"


async def ready(spec: dict[str, Any] | None = None) -> World:
    world = World()
    world.cluster.put(parent(spec))
    await world.converge()
    return world


def events(world: World) -> list[tuple[str, str, int]]:
    found = world.cluster.all(kinds.EVENT).values()
    return sorted((e["type"], e["reason"], e["count"]) for e in found)


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


# --- names and owners


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


# --- builds


async def test_an_upgrade_of_the_operator_restarts_no_engine() -> None:
    world = await ready()
    engines = world.engines()
    world.start(NextBuild(operator_image="epd-operator:2"))
    await world.converge()
    assert world.engines() == engines
    assert world.condition("UpdateAvailable") == ("True", "UpdateAvailable")
    assert world.condition("Ready") == ("True", "AllReady")
    proxy = world.cluster.all(kinds.DEPLOYMENT)["qwen-proxy"]["spec"]["template"]["spec"]["containers"][0]
    assert proxy["image"] == "epd-operator:2"
    # Drift heals to what was rendered before, not to what would be rendered now.
    kept = world.children()
    world.cluster.edit(kinds.DEPLOYMENT, ENCODE, ("spec", "template", "spec", "containers"), [])
    await world.converge()
    assert world.children() == kept


@pytest.mark.parametrize(
    "change",
    [{"restartedAt": "now"}, {"model": {"name": "Qwen/Other"}}, {"encode": {"replicas": 2, "args": ["--seed=1"]}}],
    ids=["restartedAt", "model", "encode.args"],
)
async def test_a_change_of_the_user_takes_the_new_rendering(change: dict[str, Any]) -> None:
    world = await ready()
    world.start(NextBuild(operator_image="epd-operator:2"))
    await world.converge()
    world.set_spec(with_spec(**change))
    await world.converge()
    template = world.cluster.all(kinds.DEPLOYMENT)[ENCODE]["spec"]["template"]["spec"]
    assert {"name": "NEXT", "value": "1"} in template["containers"][0]["env"]
    assert world.condition("UpdateAvailable") == ("False", "UpToDate")


async def test_scaling_does_not_take_the_new_rendering() -> None:
    world = await ready()
    world.start(NextBuild(operator_image="epd-operator:2"))
    world.set_spec(with_spec(encode={"replicas": 3}))
    await world.converge()
    assert world.cluster.all(kinds.DEPLOYMENT)[ENCODE]["spec"]["replicas"] == 3
    assert world.condition("UpdateAvailable") == ("True", "UpdateAvailable")


async def test_history_is_bounded_and_going_back_takes_up_the_old_revision() -> None:
    world = await ready()
    for number in range(13):
        world.set_spec(with_spec(restartedAt=str(number)))
        await world.converge()
    world.set_spec(with_spec(restartedAt="5"))
    await world.converge()
    mine = [r for n, r in world.cluster.all(kinds.CONTROLLER_REVISION).items() if n.startswith(ENCODE)]
    assert len(mine) == 10
    assert max(r["revision"] for r in mine) == 15


# --- replicas


def owners_of_replicas(world: World) -> set[str]:
    entries = world.cluster.all(kinds.DEPLOYMENT)[ENCODE]["metadata"]["managedFields"]
    return {e["manager"] for e in entries if "f:replicas" in e["fieldsV1"].get("f:spec", {})}


async def test_a_scaler_takes_over_without_a_dip_and_gives_back() -> None:
    world = await ready(with_spec(encode={"replicas": 5}))
    seen: list[int] = []

    def on_event(kind: Kind, obj: Manifest) -> None:
        if kind == kinds.DEPLOYMENT and obj["metadata"]["name"] == ENCODE:
            seen.append(obj["spec"]["replicas"])

    world.cluster.on_event = on_event
    scaled = with_spec(encode={"scaling": {"mode": "External"}})
    world.set_spec(scaled)
    await world.converge()
    assert owners_of_replicas(world) == {names.REPLICAS_FIELD_MANAGER}
    world.cluster.edit(kinds.DEPLOYMENT, ENCODE, ("spec", "replicas"), 7, manager="hpa")
    await world.converge()
    assert set(seen) == {5, 7}
    world.set_spec({**scaled, "suspend": True})
    await world.converge()
    assert world.cluster.all(kinds.DEPLOYMENT)[ENCODE]["spec"]["replicas"] == 0
    assert world.condition("Ready") == ("True", "Suspended")
    assert world.condition("Available") == ("False", "Suspended")
    assert world.status["roleSummary"] == "0E 0PD"
    world.set_spec(scaled)
    await world.converge()
    assert world.cluster.all(kinds.DEPLOYMENT)[ENCODE]["spec"]["replicas"] == 7
    world.set_spec(with_spec(encode={"replicas": 2}))
    await world.converge()
    assert world.cluster.all(kinds.DEPLOYMENT)[ENCODE]["spec"]["replicas"] == 2
    assert names.FIELD_MANAGER in owners_of_replicas(world)


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


# --- permissions


async def test_every_call_is_in_the_table_of_permissions_and_the_table_is_used() -> None:
    used: set[tuple[str, str]] = set()
    for spec in (SPEC, with_spec(encode=None), with_spec(suspend=True)):
        world = World()
        world.cluster.put(parent())
        await world.reconcile()
        await world.reconcile()  # the claim is Pending: its Events are read
        await world.converge()
        world.set_spec(spec)
        await world.converge()
        world.start()
        world.set_spec(SPEC)
        await world.converge()
        world.start(NextBuild(operator_image="epd-operator:2"))  # its connector is made, and nothing mounts it
        await world.converge()
        used |= {(c.kind.plural, c.verb) for c in world.cluster.calls}
    granted = {(p.resource, v) for p in permissions.PERMISSIONS for v in p.verbs if "/" not in p.resource}
    # kopf watches; whoever applies what does not exist is asked for create; the resync lists parents; only what stands
    # in the way or is no longer wanted is deleted; the Roles of proxy and collector hand `get` of these on.
    elsewhere = {(r, v) for r, v in granted if v in {"watch", "create", "delete"}}
    assert granted - used - elsewhere == {("pods", "get"), ("replicasets", "get")}


async def test_a_call_outside_the_table_fails() -> None:
    secret = Kind("", "v1", "Secret", "secrets")
    with pytest.raises(AssertionError, match="get secrets"):
        await SimulatedCluster().get(secret, "ai", "hf")
    with pytest.raises(AssertionError, match="delete pods"):
        await SimulatedCluster().delete(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "ai"}}
        )
