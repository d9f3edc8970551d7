"""What a collector reports at `/status`: the shape that collector and operator share. Shapes only."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""As far as status, whose integers have 64 bits."""
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
"""Three times what a duration of the API may be."""


class _Shape(BaseModel):
    """A newer collector may say more: unknown fields are ignored."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")


class VersionState(StrEnum):
    """Where a model version's directory is in its life."""

    LIVE = "Live"
    CONDEMNED = "Condemned"
    TRASH = "Trash"


class Trouble(_Shape):
    """Something a person should know: `reason` is one of `epd.api.names.Reason`."""

    reason: str = Field(min_length=1, max_length=63)
    message: str


class VersionReport(_Shape):
    """One model version on the claim."""

    name: str
    state: VersionState
    entries: Count = 0
    used_bytes: Count = 0
    """Allocated bytes, each inode once."""
    since: str = ""
    """When it got this state (RFC 3339); empty when unknown."""
    users: tuple[str, ...] = ()
    """EPDDeployments of the namespace that name it; of the claim's users only."""


class PolicyReport(_Shape):
    """The policy in force: the most careful of all users of the claim. Times in seconds."""

    enabled: bool = True
    dry_run: bool = False
    version_grace_seconds: Seconds = 0
    entry_ttl_seconds: Seconds | None = None
    min_idle_seconds: Seconds = 0
    high_watermark_percent: Count = 0
    low_watermark_percent: Count = 0
    origins: dict[str, str] = Field(default_factory=dict)
    """Field of `garbageCollection` to the name of the EPDDeployment whose value won."""


class VolumeReport(_Shape):
    """What statvfs says of the volume."""

    capacity_bytes: Count = 0
    used_bytes: Count = 0
    capacity_inodes: Count = 0
    """0 on file systems that count none."""
    used_inodes: Count = 0


class CollectionReport(_Shape):
    """One pass that removed something."""

    finished: str
    """RFC 3339."""
    removed_entries: Count = 0
    removed_versions: Count = 0
    freed_bytes: Count = 0


class CollectorReport(_Shape):
    """The answer of `GET /status`."""

    claim: str
    """Name of the claim."""
    sub_path: str = ""
    root_id: str = ""
    owned: bool = False
    """Whether this claim owns the root; without it nothing is deleted."""
    passes: Count = 0
    """Finished passes since start; 0: everything below is not known yet."""
    last_pass: str = ""
    """When the last pass ended (RFC 3339)."""
    volume: VolumeReport = VolumeReport()
    used_bytes: Count = 0
    """Of all our versions and the trash."""
    entries: Count = 0
    foreign_bytes: Count = 0
    foreign_entries: Count = 0
    trash_bytes: Count = 0
    freed_bytes: Count = 0
    """Since start."""
    versions: tuple[VersionReport, ...] = ()
    policy: PolicyReport = PolicyReport()
    last_collection: CollectionReport | None = None
    liveness_valid: bool = False
    """Whether the last question to the API server gave a set of live versions that may be acted on."""
    troubles: tuple[Trouble, ...] = ()
    """Worst first."""
