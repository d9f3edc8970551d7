"""`reclaimPolicy: Delete` on a claim that was brought: when an object that goes may go, and what it leaves behind.

Pure. The claim itself is never deleted; the object's cache versions on it are, by the claim's collector, as far as
nobody else uses them. An object never waits for longer than `PATIENCE_SECONDS`: a namespace must be able to go, and
directories can be deleted by hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from epd.api import names
from epd.api.collection import CollectorReport, VersionReport
from epd.api.names import Reason
from epd.api.quantity import bytes_text
from epd.api.types import ConnectorKind, EPDDeployment, ReclaimPolicy, Spec, Status
from epd.controller.cache import NO_TROUBLE, Collector, collected
from epd.controller.events import NORMAL, WARNING, Note
from epd.controller.kinds import Manifest
from epd.topology.model_version import model_version
from epd.topology.storage import encoder_cache_claim

PATIENCE_SECONDS: Final = 300
"""From the deletion on. A pass takes seconds, engines as long as they drain."""

VERSIONS_NAMED: Final = 5
"""In an Event, which is short; a claim has a few."""


@dataclass(frozen=True, kw_only=True)
class Going:
    """An object that is being deleted, and what is known.

    `engines` counts its engine pods, terminating ones too; `seen` is how many passes the collector had made when they
    were first seen gone, None before; `others` are versions that other objects name; `alone` tells that nobody else
    uses the directory.
    """

    epd: EPDDeployment
    claim: Manifest | None
    collector: Collector
    engines: int
    seen: int | None
    others: frozenset[str]
    alone: bool


@dataclass(frozen=True)
class Wait:
    """It has to wait; for what, in words."""

    words: str


@dataclass(frozen=True)
class Release:
    """It may go; `note` tells what became of the entries."""

    note: Note


def wanted(epd: EPDDeployment) -> bool:
    """Whether the object needs the finalizer. A claim made from a template goes with its object, entries and all."""
    cache = epd.spec.encoder_cache
    if cache is None or cache.volume is None or cache.volume.persistent_volume_claim is None:
        return False
    return cache.reclaim_policy is ReclaimPolicy.DELETE and cache.connector is not ConnectorKind.CUSTOM


def versions_named(parent: Manifest) -> frozenset[str]:
    """The cache versions that an EPDDeployment names by spec or status; what cannot be read names none."""
    found: set[str] = set()
    with suppress(ValidationError):
        found.add(model_version(Spec.model_validate(parent.get("spec"))))
    try:
        status = Status.model_validate(parent.get("status") or {})
    except ValidationError:
        return frozenset(found)
    found |= {status.model_version, *(version for role in status.roles for version in role.model_versions)}
    return frozenset(found - {""})


def decide(going: Going, *, own: frozenset[str], now: datetime) -> Wait | Release:
    """Wait, or release; `own` are the versions that the object names."""
    if going.claim is None or going.claim["metadata"].get("deletionTimestamp"):
        return Release(Note(NORMAL, Reason.RECLAIMED, f"claim {_place(going.epd)} is gone, and the entries with it"))
    if hopeless := _hopeless(going):
        return _given_up(going, own, hopeless)
    report = going.collector.answer.report
    waiting = _waiting(going, own)
    if waiting is None and report is not None:
        return Release(Note(NORMAL, Reason.RECLAIMED, _done(going, report, own)))
    if _age(going.epd, now) >= PATIENCE_SECONDS:
        return _given_up(going, own, f"not done in {PATIENCE_SECONDS // 60} min: {waiting}")
    return Wait(str(waiting))


def _hopeless(going: Going) -> str:
    """Why waiting would not help; empty if it may."""
    collector, report = going.collector, going.collector.answer.report
    cache = going.epd.spec.encoder_cache
    if not collected(going.epd):
        return "garbageCollection.enabled is false"
    if cache is not None and cache.garbage_collection.dry_run:
        return "garbageCollection.dryRun is true"
    if collector.problem is not None and collector.problem.reason != Reason.USERS_DISAGREE:
        return f"the claim's collector cannot be made: {collector.problem.message}"
    if collector.deployment is None and not collector.placed:
        return "the claim's collector never ran"
    if report is None or not report.passes:
        return ""
    if any(trouble.reason == Reason.ROOT_OWNED_BY_ANOTHER_CLAIM for trouble in report.troubles):
        return "the directory belongs to another claim"
    if not report.policy.enabled or report.policy.dry_run:
        who = report.policy.origins.get("dryRun" if report.policy.dry_run else "enabled", "another user of the claim")
        return f"the policy of {who} allows no deletion"
    return ""


def _waiting(going: Going, own: frozenset[str]) -> str | None:
    """What is still to happen; None: nothing."""
    report = going.collector.answer.report
    if going.engines:
        return f"{going.engines} engine pods are stopping"
    if report is None:
        return "the claim's collector does not answer"
    if going.seen is None or report.passes <= going.seen:
        return "the collector's next pass over the store is waited for"
    trouble = next((f" ({t.message})" for t in report.troubles if t.reason not in NO_TROUBLE), "")
    if not report.owned:
        return f"the collector's last pass failed, so that it is not known what is left{trouble}"
    if left := _left(going, report, own):
        return f"the collector is deleting {_listed(left)}{trouble}"
    return None


def _left(going: Going, report: CollectorReport, own: frozenset[str]) -> list[VersionReport]:
    mine = own - going.others
    return [version for version in report.versions if version.name in mine and not _used_by_others(going, version)]


def _used_by_others(going: Going, version: VersionReport) -> bool:
    return any(user != going.epd.metadata.name for user in version.users)


def _given_up(going: Going, own: frozenset[str], why: str) -> Release:
    report = going.collector.answer.report
    left = _left(going, report, own) if report is not None else []
    names_left = _listed(left) if left else ", ".join(sorted(own - going.others)) or "nothing that has its name"
    return Release(
        Note(
            WARNING,
            Reason.RECLAIM_GIVEN_UP,
            f"{why}. Left on claim {_place(going.epd)}: {names_left}. To free it, delete these directories from a pod "
            "that mounts the claim.",
        )
    )


def _done(going: Going, report: CollectorReport, own: frozenset[str]) -> str:
    text = f"the entries of {', '.join(sorted(own - going.others)) or 'no version'} are gone from {_place(going.epd)}"
    if shared := sorted(own & going.others):
        text += f"; kept, since others use them: {', '.join(shared)}"
    # With the last user its collector goes too, and what it would have deleted later stays.
    older = [version for version in report.versions if version.name not in own and not version.users]
    if going.alone and older:
        text += f"; left, since unused for less than versionGracePeriod: {_listed(older)}"
    return text


def _listed(versions: Iterable[VersionReport]) -> str:
    texts = [f"{version.name} ({bytes_text(version.used_bytes)})" for version in versions]
    more = len(texts) - VERSIONS_NAMED
    return ", ".join(texts[:VERSIONS_NAMED]) + (f" and {more} more" if more > 0 else "")


def _place(epd: EPDDeployment) -> str:
    claim = encoder_cache_claim(epd)
    if claim is None:
        return ""
    return f"{claim.claim_name}, directory {claim.sub_path}" if claim.sub_path else claim.claim_name


def _age(epd: EPDDeployment, now: datetime) -> float:
    since = epd.metadata.deletion_timestamp
    return (now - datetime.fromisoformat(since)).total_seconds() if since else 0.0


def with_finalizer(parent: Manifest, *, wanted: bool) -> list[str] | None:
    """The finalizers that the object should have; None: those that it has."""
    held: list[str] = list(parent["metadata"].get("finalizers") or ())
    if wanted == (names.FINALIZER_ENCODER_CACHE in held):
        return None
    if wanted:
        return [*held, names.FINALIZER_ENCODER_CACHE]
    return [finalizer for finalizer in held if finalizer != names.FINALIZER_ENCODER_CACHE]
