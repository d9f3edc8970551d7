from __future__ import annotations

from typing import Any

import pytest

from epd.api import names
from epd.api.collection import PolicyReport, Trouble, VersionReport, VersionState
from epd.controller import errors, kinds
from epd.controller.keys import keys_of
from epd.controller.kinds import Manifest
from simulation.api import SimulatedCluster
from simulation.world import SPEC, World, parent, report, with_spec

CLAIM = "claim/ai/shared"
COLLECTOR = "shared-collector"


def brought(**claim: Any) -> dict[str, Any]:
    return with_spec(encoderCache={"volume": {"persistentVolumeClaim": {"claimName": "shared", **claim}}})


def with_collection(**policy: Any) -> dict[str, Any]:
    spec = brought()
    spec["encoderCache"]["garbageCollection"] = policy
    return spec


def claim(*, modes: tuple[str, ...] = ("ReadWriteMany",)) -> Manifest:
    metadata = {"name": "shared", "namespace": "ai"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {"accessModes": modes}}


async def shared(*specs: dict[str, Any]) -> World:
    """A world at rest with the objects qwen, b, c, ... of these specs on one claim."""
    world = World()
    world.report = report("shared")
    world.cluster.put(claim())
    for name, spec in zip(("qwen", "b", "c"), specs, strict=False):
        world.cluster.put(parent(spec, name=name))
    await world.converge()
    return world


def collectors(world: World) -> dict[str, list[str]]:
    """Names of the owners of each collector."""
    deployments = world.cluster.all(kinds.DEPLOYMENT).values()
    return {
        d["metadata"]["name"]: [o["name"] for o in d["metadata"].get("ownerReferences", [])]
        for d in deployments
        if names.LABEL_COLLECTOR in d["metadata"]["labels"]
    }


def message(world: World, type_: str) -> str:
    return str(next(c["message"] for c in world.status["conditions"] if c["type"] == type_))


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


async def test_all_users_that_disable_collection_have_none_and_say_so() -> None:
    world = await shared(with_collection(enabled=False))
    assert collectors(world) == {}
    assert world.condition("EncoderCacheHealthy") == ("True", "CollectionDisabled")
    assert world.condition("Ready")[0] == "True"


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


async def test_words_of_the_api_server_reach_every_user() -> None:
    world = await shared(with_collection(podTemplate={"spec": {"tolerationz": []}}), brought())
    for name in ("qwen", "b"):
        conditions = world.cluster.all(kinds.EPD)[name]["status"]["conditions"]
        health = next(c for c in conditions if c["type"] == "EncoderCacheHealthy")
        assert (health["status"], health["reason"]) == ("False", "RejectedByAPIServer")
        assert ".spec.template.spec.tolerationz: field not declared" in health["message"]


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


# --- what its report does to the status


async def test_figures_are_coarse_and_move_once_a_minute() -> None:
    world = await shared(brought())
    world.report = report("shared", used_bytes=123_456_789_012, entries=123_456)
    world.time += 59
    assert await world.reports.refresh() == frozenset()
    world.time += 1
    assert await world.reports.refresh() == {"ai/qwen"}
    await world.reconcile()
    cache = world.status["encoderCache"]
    assert (cache["usedBytes"], cache["entries"], cache["used"]) == (114 << 30, 123_000, "114Gi")
    world.report = report("shared", used_bytes=123_400_000_000, entries=123_999, passes=9, last_pass="x")
    world.time += 60
    before = world.cluster.writes
    assert await world.reports.refresh() == frozenset()
    await world.resync()
    assert world.cluster.writes == before


@pytest.mark.parametrize(
    ("reason", "ready"),
    [("RootOwnedByAnotherClaim", "False"), ("NotWritable", "False"), ("OverWatermark", "True"),
     ("ForeignDataDominates", "True"), ("LivenessUnknown", "True")],
)  # fmt: skip
async def test_troubles_of_the_store_never_reach_available(reason: str, ready: str) -> None:
    world = await shared(brought())
    world.report = report("shared", troubles=(Trouble(reason=reason, message="why"),))
    world.time += 60
    await world.reconcile()
    assert world.condition("EncoderCacheHealthy") == ("False", reason)
    assert world.condition("Available")[0] == "True"
    assert world.condition("Ready")[0] == ready


async def test_a_hiccup_moves_nothing_and_a_long_silence_is_unknown_and_still_ready() -> None:
    world = await shared(brought())
    world.report = None
    before = world.cluster.writes
    for _ in range(2):
        world.time += 60
        await world.reconcile()
    assert world.cluster.writes == before
    world.time += 120
    await world.reconcile()
    assert world.condition("EncoderCacheHealthy") == ("Unknown", "CollectorNotRunning")
    assert "cannot be read" in message(world, "EncoderCacheHealthy")
    assert world.condition("Ready")[0] == "True"


async def test_the_collectors_pod_is_named_with_its_own_reason() -> None:
    world = await shared(brought())
    pod = next(p for n, p in world.cluster.all(kinds.POD).items() if n.startswith(COLLECTOR))
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "denied"}}
    statuses = [{"name": "collector", "image": "epd-operator:1", "state": state}]
    world.cluster.set_status(pod, {"containerStatuses": statuses})
    outcome = await world.reconcile(CLAIM)
    assert outcome.also == ("ai/qwen",)
    await world.reconcile()
    assert world.condition("EncoderCacheHealthy") == ("False", "CollectorNotRunning")
    assert "ImagePull: pod shared-collector-" in message(world, "EncoderCacheHealthy")
    assert (await world.reconcile(CLAIM)).also == ()  # told once


async def test_without_a_store_there_is_no_condition() -> None:
    custom = {"connector": "Custom", "custom": {"class": "C", "module": "m"}}
    world = World()
    world.cluster.put(parent(with_spec(encoderCache=custom)))
    await world.converge()
    assert "EncoderCacheHealthy" not in [c["type"] for c in world.status["conditions"]]
    assert SPEC["encoderCache"]  # the other tests have one


# --- Events of the store


def told(world: World) -> list[tuple[str, str, str]]:
    found = world.cluster.all(kinds.EVENT).values()
    store = {"VersionCondemned", "VersionRemoved", "EntriesRemoved", "Healthy", "RootOwnedByAnotherClaim"}
    return [(e["involvedObject"]["name"], e["reason"], e["message"]) for e in found if e["reason"] in store]


def version(name: str, state: VersionState) -> VersionReport:
    return VersionReport(name=name, state=state, entries=4, used_bytes=5 << 30)


async def test_what_happens_to_versions_is_told_once_to_every_user_also_across_a_restart() -> None:
    world = await shared(brought(), brought())
    for versions in ([VersionState.LIVE], [VersionState.CONDEMNED], [VersionState.TRASH], []):
        policy = PolicyReport(version_grace_seconds=3600)
        world.report = report("shared", versions=tuple(version("v1-a", s) for s in versions), policy=policy)
        world.start()
        await world.resync()
        await world.resync()
    condemned = "no one uses version v1-a (5Gi) any more; it is deleted unless that changes within 1h"
    removed = "version v1-a, which no one used, was deleted (5Gi)"
    assert sorted(told(world)) == [
        ("b", "VersionCondemned", condemned), ("b", "VersionRemoved", removed),
        ("qwen", "VersionCondemned", condemned), ("qwen", "VersionRemoved", removed),
    ]  # fmt: skip


async def test_a_root_that_is_refused_and_adopted_is_told() -> None:
    world = await shared(brought())
    other = Trouble(reason="RootOwnedByAnotherClaim", message="claim ai/old has it")
    for troubles in ((other,), ()):
        world.report = report("shared", root_id="r1", troubles=troubles)
        world.time += 60
        await world.reconcile()
    assert told(world) == [
        ("qwen", "RootOwnedByAnotherClaim", "claim ai/old has it"),
        ("qwen", "Healthy", "claim shared has taken over the root r1"),
    ]


async def test_users_that_disagree_are_told_and_none_of_them_is_unready_by_the_other() -> None:
    world = await shared(brought(), {**brought(), "securityContext": {"runAsUser": 7}})
    assert world.condition("EncoderCacheHealthy") == ("False", "UsersDisagree")
    assert "b and qwen share the claim with different spec.securityContext" in message(world, "EncoderCacheHealthy")
    assert world.condition("Ready") == ("True", "AllReady")


async def test_whatever_is_made_has_the_label_that_watches_select_and_leads_to_a_key() -> None:
    world = await shared(brought())
    made = [(kind, obj) for (kind, _, _), obj in world.cluster.objects.items() if kind in (*kinds.CHILDREN, kinds.POD)]
    ours = [(kind, obj) for kind, obj in made if obj["metadata"]["name"] != "shared"]
    assert {obj["metadata"]["labels"].get(names.LABEL_MANAGED_BY) for _, obj in ours} == {names.FIELD_MANAGER}
    assert {key for kind, obj in ours for key in keys_of(kind, obj)} == {"ai/qwen", CLAIM}
