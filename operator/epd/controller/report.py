"""Writes status: the smallest merge patch from the status that is there to the one that is true, or nothing.

Computes no status; `status` does.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from epd.api.names import ConditionType, Reason
from epd.api.types import Condition, Status
from epd.controller import conditions
from epd.controller.cluster import Cluster
from epd.controller.conditions import Finding
from epd.controller.errors import NotFound
from epd.controller.kinds import Manifest


async def write_status(cluster: Cluster, parent: Manifest, new: Manifest) -> bool:
    """Patch `/status` if it differs; returns whether it did. An object that is gone needs none."""
    patch = merge_patch(parent.get("status") or {}, new)
    if not patch:
        return False
    try:
        await cluster.patch_status(parent, patch)
    except NotFound:
        return False
    return True


def merge_patch(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) that makes `old` into `new`; lists are replaced whole."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            if inner := merge_patch(before, value):
                patch[key] = inner
        elif key not in old or value != before:
            patch[key] = value
    return patch


def unreadable(parent: Manifest, error: ValidationError, *, now: str) -> Manifest:
    """The status of an object that this operator cannot parse: made under a newer, or a foreign, definition."""
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    problem = f"{place}: {first['msg']}"
    old = parent.get("status") or {}
    merged = conditions.merge(
        [Condition.model_validate(c) for c in old.get("conditions") or ()],
        {
            ConditionType.READY: Finding.false(Reason.INVALID_SPEC, problem),
            ConditionType.RECONCILING: Finding.false(Reason.INVALID_SPEC, ""),
            ConditionType.STALLED: Finding.true(Reason.INVALID_SPEC, problem),
        },
        generation=parent["metadata"]["generation"],
        now=now,
    )
    status = Status(observed_generation=parent["metadata"]["generation"], conditions=merged)
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)
