"""Another build of the operator, other revisions, and who says how many replicas there are."""

from __future__ import annotations

from typing import Any

import pytest

from epd.api import names
from epd.controller import kinds
from epd.controller.kinds import Kind, Manifest
from simulation.world import NextBuild, World, with_spec
from simulation.worlds import ENCODE, ready

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


PROXY = "qwen-proxy"


def owners_of_replicas(world: World, deployment: str = ENCODE) -> set[str]:
    entries = world.cluster.all(kinds.DEPLOYMENT)[deployment]["metadata"]["managedFields"]
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


async def test_a_scaler_takes_the_proxy_over_and_keeps_it_while_suspended() -> None:
    world = await ready(with_spec(proxy={"replicas": 3}))
    seen: list[int] = []

    def on_event(kind: Kind, obj: Manifest) -> None:
        if kind == kinds.DEPLOYMENT and obj["metadata"]["name"] == PROXY:
            seen.append(obj["spec"]["replicas"])

    world.cluster.on_event = on_event
    scaled = with_spec(proxy={"scaling": {"mode": "External"}})
    world.set_spec(scaled)
    await world.converge()
    assert owners_of_replicas(world, PROXY) == {names.REPLICAS_FIELD_MANAGER}
    world.cluster.edit(kinds.DEPLOYMENT, PROXY, ("spec", "replicas"), 7, manager="hpa")
    await world.converge()
    world.set_spec({**scaled, "suspend": True})
    await world.converge()
    assert world.condition("Ready") == ("True", "Suspended")
    world.set_spec(scaled)
    await world.converge()
    assert set(seen) == {3, 7}
    world.set_spec(with_spec())
    await world.converge()
    assert world.cluster.all(kinds.DEPLOYMENT)[PROXY]["spec"]["replicas"] == 2
    assert names.FIELD_MANAGER in owners_of_replicas(world, PROXY)
