"""Objects that are let go although entries are left, or that nobody waits for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from epd.api.collection import PolicyReport
from epd.controller import kinds
from simulation.reclaiming import ANOTHERS, gone, look, reclaiming, stored, told
from simulation.worlds import COLLECTOR, shared


async def test_after_five_minutes_it_says_what_is_left_and_goes() -> None:
    world = await shared(reclaiming())
    stored(world)
    world.delete("qwen")
    await look(world)
    await look(world)
    stored(world, passes=3)
    world.clock.leapt = timedelta(minutes=5)
    await look(world)
    assert gone(world)
    reason, message = told(world)[-1]
    assert reason == "ReclaimGivenUp"
    assert message.startswith("not done in 5 min: the collector is deleting v1-")
    assert "Left on claim shared: v1-" in message
    assert "delete these directories" in message


@pytest.mark.parametrize(
    ("cache", "changes", "words"),
    [
        ({"garbageCollection": {"enabled": False}}, {}, "garbageCollection.enabled is false"),
        ({"garbageCollection": {"dryRun": True}}, {}, "garbageCollection.dryRun is true"),
        ({}, {"owned": False, "troubles": (ANOTHERS,)}, "the directory belongs to another claim"),
        ({}, {"policy": PolicyReport(dry_run=True, origins={"dryRun": "b"})}, "the policy of b allows no deletion"),
    ],
    ids=["disabled", "dry run", "another's root", "another's policy"],
)
async def test_where_waiting_would_not_help_it_goes_at_once(
    cache: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    world = await shared(reclaiming(**cache))
    stored(world, **changes)
    world.delete("qwen")
    await look(world)
    assert gone(world)
    assert told(world)[-1][0] == "ReclaimGivenUp"
    assert told(world)[-1][1].startswith(f"{words}. Left on claim shared: v1-")


async def test_a_collector_that_never_ran_is_not_waited_for() -> None:
    world = await shared({**reclaiming(), "suspend": True})
    assert COLLECTOR not in world.cluster.all(kinds.DEPLOYMENT)
    world.delete("qwen")
    await look(world)
    assert gone(world)
    assert told(world)[-1][1].startswith("the claim's collector never ran. Left on claim shared: v1-")


@pytest.mark.parametrize("leaving", [False, True])
async def test_a_claim_that_is_gone_takes_the_entries_with_it(leaving: bool) -> None:
    world = await shared(reclaiming())
    claim = world.cluster.all(kinds.PERSISTENT_VOLUME_CLAIM)["shared"]
    if leaving:
        world.cluster.put({**claim, "metadata": {**claim["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    else:
        world.cluster.remove(kinds.PERSISTENT_VOLUME_CLAIM, "ai", "shared")
    world.delete("qwen")
    await look(world)
    assert gone(world)
    assert told(world) == [("Reclaimed", "claim shared is gone, and the entries with it")]


async def test_a_terminating_namespace_lets_it_go_at_once() -> None:
    world = await shared(reclaiming())
    stored(world)
    world.delete("qwen")
    world.cluster.terminating = True
    await world.reconcile()
    assert gone(world)


async def test_retain_is_the_way_out_for_who_does_not_want_to_wait() -> None:
    world = await shared(reclaiming())
    stored(world)
    world.delete("qwen")
    await look(world)
    world.set_spec(reclaiming(reclaimPolicy="Retain"))
    await world.reconcile()
    assert gone(world)


async def test_an_object_that_cannot_be_parsed_is_not_held_back() -> None:
    world = await shared(reclaiming())
    live = world.cluster.all(kinds.EPD)["qwen"]
    world.cluster.put({**live, "spec": {**live["spec"], "engine": 3}})
    world.delete("qwen")
    await world.reconcile()
    assert gone(world)
    assert told(world)[-1][0] == "ReclaimGivenUp"
