"""An object under reclaimPolicy Delete that goes: what its collector reports, and what is told."""

from __future__ import annotations

from typing import Any

from epd.api import names
from epd.api.collection import Trouble, VersionReport, VersionState
from epd.controller import kinds
from simulation.world import World, report, with_spec

MINE = "v1-qwen2-5-vl-3b-instruct-"
ANOTHERS = Trouble(reason=names.Reason.ROOT_OWNED_BY_ANOTHER_CLAIM, message="root r is owned by claim b/shared")


def reclaiming(**cache: Any) -> dict[str, Any]:
    volume = {"persistentVolumeClaim": {"claimName": "shared"}}
    return with_spec(encoderCache={"volume": volume, "reclaimPolicy": "Delete", **cache})


def finalizers(world: World) -> list[str]:
    return list(world.cluster.all(kinds.EPD)["qwen"]["metadata"].get("finalizers") or ())


def gone(world: World) -> bool:
    return "qwen" not in world.cluster.all(kinds.EPD)


def stored(world: World, *users: str, name: str = "", passes: int = 2, **changes: Any) -> None:
    """The collector reports that the object's version is still there."""
    version = VersionReport(
        name=name or world.status["modelVersion"], state=VersionState.LIVE, used_bytes=3 << 30, users=users
    )
    world.report = report("shared", versions=(version,), passes=passes, **changes)


def told(world: World) -> list[tuple[str, str]]:
    found = world.cluster.all(kinds.EVENT).values()
    return [(e["reason"], e["message"]) for e in found if e["reason"].startswith("Reclaim")]


async def look(world: World) -> None:
    world.time += 5
    await world.reconcile()
    world.controllers()
    await world.resync()
