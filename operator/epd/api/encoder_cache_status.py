"""`status.encoderCache`: what a claim's collector reports, in bounded shapes. Pure; asks no collector."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from epd.api.collection import CollectionReport, CollectorReport, PolicyReport, VersionReport, VersionState
from epd.api.fields import ApiModel
from epd.api.quantity import bytes_text, duration_text

MAX_VERSIONS: Final = 32
"""Versions listed; of more, the live ones and the largest. An object has few kilobytes to say."""
MAX_USERS: Final = 16
_NAME: Final = 63
_SIZE: Final = 32
_TIME: Final = 32

Name = Annotated[str, Field(max_length=_NAME)]


class CachedVersionStatus(ApiModel):
    """One cache version on the claim."""

    name: str = Field(max_length=_NAME)
    """Name of the version and of its directory."""
    state: str = Field(max_length=16, json_schema_extra={"enum": [state.value for state in VersionState]})
    """Live: in use. Condemned: unused, goes after versionGracePeriod. Trash: out of use for good, being deleted."""
    entries: int = Field(0, ge=0, json_schema_extra={"format": "int64"})
    """Entries, one a media item."""
    used: str = Field("", max_length=_SIZE)
    """Size, for example `12.3Gi`."""
    since: str = Field("", max_length=_TIME)
    """When it got this state."""
    users: list[Name] = Field(
        default_factory=list, max_length=MAX_USERS, json_schema_extra={"x-kubernetes-list-type": "set"}
    )
    """EPDDeployments that use it."""


class PolicyStatus(ApiModel):
    """The policy in force: the most careful of all users of the claim."""

    enabled: bool
    """Whether anything may be deleted."""
    dry_run: bool
    """Whether the collector only says what it would delete."""
    version_grace_period: str = Field("", max_length=_SIZE)
    """How long a version must be unused."""
    entry_ttl: str = Field("", max_length=_SIZE, alias="entryTTL")
    """How long an entry may be unused; absent for no limit."""
    min_idle: str = Field("", max_length=_SIZE)
    """Entries used more recently stay."""
    high_watermark_percent: int = Field(ge=0, le=100)
    """Share above which entries are deleted."""
    low_watermark_percent: int = Field(ge=0, le=100)
    """Share down to which they are deleted."""
    origins: dict[str, Name] = Field(default_factory=dict, json_schema_extra={"maxProperties": 16})
    """Field of garbageCollection -> the EPDDeployment whose value counts."""


class LastCollectionStatus(ApiModel):
    """The last pass that deleted something."""

    finished: str = Field("", max_length=_TIME)
    """When it ended."""
    removed_entries: int = Field(ge=0, json_schema_extra={"format": "int64"})
    """Entries deleted one by one."""
    removed_versions: int = Field(ge=0)
    """Versions deleted as a whole."""
    freed: str = Field("", max_length=_SIZE)
    """Size that it freed, for example `1.2Gi`."""


class EncoderCacheStatus(ApiModel):
    """The claim of the encoder cache as the cluster has it, and the store on it as its collector sees it."""

    claim: str = Field(max_length=253)
    """Name of the PersistentVolumeClaim."""
    phase: str = Field("", max_length=32)
    """Phase of the claim, for example `Bound`."""
    capacity: str = Field("", max_length=32)
    """Size that the volume reports, for example `100Gi`."""
    used: str = Field("", max_length=_SIZE)
    """Size of all cache versions on the claim, of all its users, for example `12.3Gi`. Absent: not known."""
    used_bytes: int | None = Field(None, ge=0, json_schema_extra={"format": "int64"})
    """The same in bytes."""
    entries: int | None = Field(None, ge=0, json_schema_extra={"format": "int64"})
    """Entries on the claim, one a media item."""
    foreign: str = Field("", max_length=_SIZE)
    """Size of what lies in the cache's directory and is not the cache's; it is never touched."""
    freed: str = Field("", max_length=_SIZE)
    """Size that was deleted since the collector's start."""
    root_id: str = Field("", max_length=64, alias="rootID")
    """Id of the cache's directory, for the annotation that takes it over."""
    version_count: int | None = Field(None, ge=0)
    """Number of cache versions on the claim; `versions` lists at most 32."""
    versions: list[CachedVersionStatus] = Field(
        default_factory=list,
        max_length=MAX_VERSIONS,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    """Cache versions on the claim."""
    policy: PolicyStatus | None = None
    """The policy in force."""
    last_collection: LastCollectionStatus | None = None
    """The last pass that deleted something."""


def encoder_cache_status(
    claim: str, *, phase: str = "", capacity: str = "", report: CollectorReport | None = None
) -> EncoderCacheStatus:
    """Return the status of a claim; without a report, or before a first pass, what is in the store is left open."""
    plain = EncoderCacheStatus(claim=claim, phase=phase, capacity=capacity)
    if report is None or not report.passes:
        return plain
    return plain.model_copy(
        update={
            "used": bytes_text(report.used_bytes),
            "used_bytes": report.used_bytes,
            "entries": report.entries,
            "foreign": bytes_text(report.foreign_bytes),
            "freed": bytes_text(report.freed_bytes),
            "root_id": report.root_id[:64],
            "version_count": len({version.name for version in report.versions}),
            "versions": _versions(report.versions),
            "policy": _policy(report.policy),
            "last_collection": _collection(report.last_collection) if report.last_collection else None,
        }
    )


_ORDER: Final = {VersionState.LIVE: 0, VersionState.CONDEMNED: 1, VersionState.TRASH: 2}


def _versions(reports: tuple[VersionReport, ...]) -> list[CachedVersionStatus]:
    """Each name once, as the list's key must be: a version may come back while its old directory is in the trash."""
    first: dict[str, VersionReport] = {}
    for report in sorted(reports, key=lambda version: (_ORDER[version.state], -version.used_bytes, version.name)):
        first.setdefault(report.name[:_NAME], report)
    return [
        CachedVersionStatus(
            name=name,
            state=report.state.value,
            entries=report.entries,
            used=bytes_text(report.used_bytes),
            since=report.since[:_TIME],
            users=sorted({user[:_NAME] for user in report.users})[:MAX_USERS],
        )
        for name, report in list(first.items())[:MAX_VERSIONS]
    ]


def _policy(report: PolicyReport) -> PolicyStatus:
    ttl = report.entry_ttl_seconds
    return PolicyStatus(
        enabled=report.enabled,
        dry_run=report.dry_run,
        version_grace_period=duration_text(report.version_grace_seconds),
        entry_ttl="" if ttl is None else duration_text(ttl),
        min_idle=duration_text(report.min_idle_seconds),
        high_watermark_percent=report.high_watermark_percent,
        low_watermark_percent=report.low_watermark_percent,
        origins={field: user[:_NAME] for field, user in sorted(report.origins.items())[:16]},
    )


def _collection(report: CollectionReport) -> LastCollectionStatus:
    return LastCollectionStatus(
        finished=report.finished[:_TIME],
        removed_entries=report.removed_entries,
        removed_versions=report.removed_versions,
        freed=bytes_text(report.freed_bytes),
    )
