"""Every call is one that the operator may make."""

from __future__ import annotations

import pytest

from epd.controller import permissions
from epd.controller.kinds import Kind
from simulation.api import SimulatedCluster
from simulation.world import SPEC, NextBuild, World, parent, with_spec


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
