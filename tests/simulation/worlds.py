"""Worlds at rest: one object with a claim of its own, or several on one claim, and what became of them."""

from __future__ import annotations

from typing import Any

from epd.api import names
from epd.controller import kinds
from epd.controller.kinds import Manifest
from simulation.world import World, parent, report, with_spec

ENCODE, PREFILL_DECODE = "qwen-encode", "qwen-prefilldecode"
CLAIM = "claim/ai/shared"
COLLECTOR = "shared-collector"


async def ready(spec: dict[str, Any] | None = None) -> World:
    world = World()
    world.cluster.put(parent(spec))
    await world.converge()
    return world


def events(world: World) -> list[tuple[str, str, int]]:
    found = world.cluster.all(kinds.EVENT).values()
    return sorted((e["type"], e["reason"], e["count"]) for e in found)


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
