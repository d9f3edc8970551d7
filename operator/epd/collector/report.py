"""What the collector tells at `/status`: the last pass, the policy, who lives, and what a person should mend. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from epd.api.collection import (
    CollectionReport,
    CollectorReport,
    PolicyReport,
    Trouble,
    VersionReport,
    VersionState,
    VolumeReport,
)
from epd.api.names import Reason
from epd.collector.inputs import Liveness, Policy
from epd.collector.liveness import MOST_AGE
from epd.collector.policy import InForce
from epd.collector.result import PassResult, TroubleFacts, VersionFacts
from epd.collector.seen import Root
from epd.collector.tally import Removed, Tally

SILENT_SECONDS: Final = 60.0
"""A mount that is silent for as long is told of; file servers that fail over come back within it."""

_WORST_FIRST: Final = (
    Reason.CLAIM_NOT_FOUND,
    Reason.ROOT_OWNED_BY_ANOTHER_CLAIM,
    Reason.NOT_WRITABLE,
    Reason.COLLECTION_FAILED,
    Reason.CLOCK_UNRELIABLE,
    Reason.LIVENESS_UNKNOWN,
    Reason.VERSION_IN_USE_BY_STRANGER,
    Reason.FOREIGN_DATA_DOMINATES,
    Reason.OVER_WATERMARK,
    Reason.REDUCED_GUARANTEES,
    Reason.COLLECTION_DISABLED,
    Reason.DRY_RUN,
)
"""What stops everything, then what stops a part, then what only warns, then what was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything a report is made of, at one moment. Times are monotonic, in seconds.

    Attributes:
        liveness: The last answer; None before the first.
        claim_missing: Whether the API server said that there is no such claim.
        last_valid: When the last answer that may be acted on was taken; None before the first.
        failure: Why the last pass broke off; empty if it did not.
        silent: Since when the mount has not answered; None if it does.
    """

    root: Root
    now: float
    tally: Tally
    in_force: InForce
    liveness: Liveness | None = None
    last_valid: float | None = None
    claim_missing: bool = False
    failure: str = ""
    silent: float | None = None


def report(view: View) -> CollectorReport:
    """Return the answer of `GET /status`."""
    latest = view.tally.latest or PassResult()
    return CollectorReport(
        claim=view.root.claim,
        sub_path=view.root.sub_path,
        root_id=latest.root_id,
        owned=latest.owned,
        passes=view.tally.passes,
        last_pass="" if latest.finished is None else moment(latest.finished),
        volume=VolumeReport(
            capacity_bytes=latest.volume.capacity_bytes,
            used_bytes=latest.volume.used_bytes,
            capacity_inodes=latest.volume.capacity_inodes,
            used_inodes=latest.volume.used_inodes,
        ),
        used_bytes=latest.used_bytes,
        entries=latest.entries,
        foreign_bytes=latest.foreign_bytes,
        foreign_entries=latest.foreign_entries,
        trash_bytes=latest.trash_bytes,
        freed_bytes=view.tally.freed_bytes,
        versions=tuple(_version(facts) for facts in latest.versions),
        policy=_policy(view.in_force),
        last_collection=_collection(view.tally.collected),
        liveness_valid=view.liveness is not None and view.liveness.valid,
        troubles=troubles(view, latest),
    )


def troubles(view: View, latest: PassResult) -> tuple[Trouble, ...]:
    """Return what a person should know, worst first, one of each reason; the collector's own words win."""
    found: dict[Reason, str] = {}
    for facts in (*_troubles_of_passes(view), *_troubles_of_policy(view)):
        found.setdefault(facts.reason, facts.message)
    for facts in latest.troubles:
        # a single answer that failed is no trouble: `_troubles_of_passes` tells when there is none for long
        if facts.reason is not Reason.LIVENESS_UNKNOWN:
            found.setdefault(facts.reason, facts.message)
    return tuple(Trouble(reason=reason.value, message=found[reason]) for reason in sorted(found, key=_rank))


def moment(seconds: float) -> str:
    """Return a time since the epoch as RFC 3339, in whole seconds."""
    return datetime.datetime.fromtimestamp(int(seconds), tz=datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _troubles_of_passes(view: View) -> Iterator[TroubleFacts]:
    """What keeps passes from being made, or from deleting."""
    if view.claim_missing:
        yield TroubleFacts(
            reason=Reason.CLAIM_NOT_FOUND,
            message=f"PersistentVolumeClaim {view.root.claim} is not in the namespace: nothing is deleted. Restore it, "
            "or delete the EPDDeployments that name it",
        )
    if view.silent is not None and view.now - view.silent >= SILENT_SECONDS:
        yield TroubleFacts(
            reason=Reason.COLLECTION_FAILED,
            # without the seconds, which would move the status of the object with every look
            message=f"the volume of claim {view.root.claim} does not answer; look at its file server. The collector "
            "goes on by itself when it does, a restart mends nothing",
        )
    if view.failure:
        yield TroubleFacts(
            reason=Reason.COLLECTION_FAILED,
            message=f"a pass broke off: {view.failure}. It is tried again; the collector's log has the trace",
        )
    if view.liveness is not None and not view.liveness.valid and _overdue(view):
        yield TroubleFacts(
            reason=Reason.LIVENESS_UNKNOWN,
            message=f"it is not known which versions are in use, so none is deleted: {view.liveness.message}",
        )


def _troubles_of_policy(view: View) -> Iterator[TroubleFacts]:
    """What users said that keeps everything, one of them at most."""
    policy, origins = view.in_force.policy, view.in_force.origins
    if view.in_force.unreadable:
        yield TroubleFacts(
            reason=Reason.COLLECTION_DISABLED,
            message=f"garbageCollection of EPDDeployment {view.in_force.unreadable[0]} can't be read, so nothing is "
            "deleted: correct it, or bring operator and CustomResourceDefinition to one release",
        )
    elif view.in_force.users and not policy.enabled:
        yield TroubleFacts(
            reason=Reason.COLLECTION_DISABLED,
            message=f"EPDDeployment {origins['enabled']} has garbageCollection.enabled: false, so nothing is deleted "
            "from the claim",
        )
    elif policy.dry_run:
        yield TroubleFacts(
            reason=Reason.DRY_RUN,
            message=f"EPDDeployment {origins['dryRun']} has garbageCollection.dryRun: true, so nothing is deleted from "
            "the claim; `epd-collector plan` in the collector's pod lists what would be",
        )


def _overdue(view: View) -> bool:
    """Whether there is no good answer for long: a single failure passes by itself, and would make an Event."""
    return view.last_valid is None or view.now - view.last_valid > MOST_AGE


def _rank(reason: Reason) -> tuple[int, str]:
    """Reasons that are not known here stop something too, or a pass would not tell them."""
    order = _WORST_FIRST.index(reason) if reason in _WORST_FIRST else _WORST_FIRST.index(Reason.OVER_WATERMARK)
    return order, reason.value


def _version(facts: VersionFacts) -> VersionReport:
    return VersionReport(
        name=facts.name,
        state=VersionState(facts.state.value),
        entries=facts.entries,
        used_bytes=facts.used_bytes,
        since="" if facts.since is None else moment(facts.since),
        users=facts.users,
    )


def _policy(in_force: InForce) -> PolicyReport:
    policy: Policy = in_force.policy
    return PolicyReport(
        enabled=policy.enabled,
        dry_run=policy.dry_run,
        version_grace_seconds=policy.version_grace,
        entry_ttl_seconds=policy.entry_ttl,
        min_idle_seconds=policy.min_idle,
        high_watermark_percent=policy.high_percent,
        low_watermark_percent=policy.low_percent,
        origins=dict(in_force.origins),
    )


def _collection(collected: Removed | None) -> CollectionReport | None:
    if collected is None:
        return None
    return CollectionReport(
        finished=moment(collected.finished),
        removed_entries=collected.entries,
        removed_versions=collected.versions,
        freed_bytes=collected.freed_bytes,
    )
