"""What a collector reports, and what befalls it, in the status of the objects that use its claim."""

from __future__ import annotations

import pytest

from epd.api.collection import PolicyReport, Trouble, VersionReport, VersionState
from epd.controller import kinds
from simulation.world import SPEC, World, parent, report, with_spec
from simulation.worlds import CLAIM, COLLECTOR, brought, collectors, message, shared, with_collection


async def test_all_users_that_disable_collection_have_none_and_say_so() -> None:
    world = await shared(with_collection(enabled=False))
    assert collectors(world) == {}
    assert world.condition("EncoderCacheHealthy") == ("True", "CollectionDisabled")
    assert world.condition("Ready")[0] == "True"


async def test_words_of_the_api_server_reach_every_user() -> None:
    world = await shared(with_collection(podTemplate={"spec": {"tolerationz": []}}), brought())
    for name in ("qwen", "b"):
        conditions = world.cluster.all(kinds.EPD)[name]["status"]["conditions"]
        health = next(c for c in conditions if c["type"] == "EncoderCacheHealthy")
        assert (health["status"], health["reason"]) == ("False", "RejectedByAPIServer")
        assert ".spec.template.spec.tolerationz: field not declared" in health["message"]


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
