"""Events: few, with fixed reasons, one object per (EPDDeployment, reason, message) whose count goes up.

`news` is pure and decides what is worth an Event by comparing two lists of conditions, so a status that does not move
makes none. The recorder writes; it never fails a reconcile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from epd.api import names
from epd.api.names import ConditionType, Reason
from epd.api.types import Condition
from epd.controller import kinds
from epd.controller.cluster import Cluster
from epd.controller.conditions import shorten
from epd.controller.errors import ClusterError, Conflict
from epd.controller.kinds import Manifest
from epd.controller.plan import digest
from epd.controller.status import UNDER_WAY, part_reason

logger = logging.getLogger(__name__)

NORMAL: Final = "Normal"
WARNING: Final = "Warning"


@dataclass(frozen=True)
class Note:
    """One thing that happened."""

    type: str
    reason: str
    message: str


def news(before: Iterable[Condition], after: Iterable[Condition]) -> tuple[Note, ...]:
    """What the change from one list of conditions to the next is worth telling.

    Warnings: each new problem of a part, a stall, a write that is refused and retried. Normal: the object became
    available or ready (suspended included), a rollout began, an update is there.
    """
    old = {condition.type: condition for condition in before}
    return tuple(note for condition in after if (note := _note(old.get(condition.type), condition)) is not None)


def _note(old: Condition | None, new: Condition) -> Note | None:
    type_ = ConditionType(new.type)
    said = (old.status, old.reason, old.message) if old else None
    if said == (new.status, new.reason, new.message):
        return None
    became_true = new.status == "True" and (old is None or old.status != "True")
    match type_:
        case ConditionType.STALLED:
            return Note(WARNING, new.reason, new.message) if new.status == "True" else None
        case ConditionType.AVAILABLE | ConditionType.UPDATE_AVAILABLE:
            return Note(NORMAL, new.reason, new.message) if became_true else None
        case ConditionType.READY:
            return _of_ready(old, new, became_true=became_true)
        case ConditionType.RECONCILING:
            return None
        case ConditionType.ENCODER_CACHE_HEALTHY if old and (old.status, old.reason) == (new.status, new.reason):
            return None  # its message has figures of the store, which move
        case _:
            troubled = new.status != "True" and new.reason not in UNDER_WAY
            return Note(WARNING, part_reason(type_, new.reason), new.message) if troubled else None


def _of_ready(old: Condition | None, new: Condition, *, became_true: bool) -> Note | None:
    if became_true:
        return Note(NORMAL, new.reason, new.message)
    if new.reason == Reason.RETRYING:
        return Note(WARNING, new.reason, new.message)
    if new.reason == Reason.ROLLING_OUT and old is not None and old.status == "True":
        return Note(NORMAL, new.reason, new.message)
    return None


class Recorder:
    """Writes Events of the core API, as `kubectl describe` shows them."""

    def __init__(self, cluster: Cluster, *, instance: str) -> None:
        self._cluster = cluster
        self._instance = instance

    async def record(self, regarding: Manifest, note: Note, *, now: str) -> None:
        """Create the Event, or count it up when it is there already (also across restarts: its name is a hash)."""
        event = self.event(regarding, note, now)
        try:
            try:
                await self._cluster.create(event)
            except Conflict:
                meta = event["metadata"]
                live = await self._cluster.get(kinds.EVENT, meta["namespace"], meta["name"])
                count = int(live.get("count") or 1) + 1
                await self._cluster.patch(live, {"count": count, "lastTimestamp": now})
        except ClusterError as e:
            logger.warning("event %s could not be recorded: %s", note.reason, e)

    def event(self, regarding: Manifest, note: Note, now: str) -> Manifest:
        """The Event as it would be created."""
        meta = regarding["metadata"]
        identity = digest([meta["uid"], note.type, note.reason, note.message])
        return {
            "apiVersion": kinds.EVENT.api_version,
            "kind": kinds.EVENT.kind,
            "metadata": {"name": f"{meta['name']}.{identity}", "namespace": meta["namespace"]},
            "involvedObject": {
                "apiVersion": names.API_VERSION,
                "kind": names.KIND,
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
            },
            "type": note.type,
            "reason": note.reason,
            "message": shorten(note.message),
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": names.FIELD_MANAGER},
            "reportingComponent": names.FIELD_MANAGER,
            "reportingInstance": self._instance,
        }
