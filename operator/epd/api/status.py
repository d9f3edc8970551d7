"""`status` of an EPDDeployment. Shapes only; can be recomputed from the cluster at any time."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from epd.api.encoder_cache_status import EncoderCacheStatus
from epd.api.fields import ApiModel


class ConditionStatus(StrEnum):
    """Value of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(ApiModel):
    """One statement about the object, in the shape of metav1.Condition."""

    type: str = Field(max_length=316)
    """What the condition is about; docs/api.md lists types and reasons."""
    status: str = Field(max_length=8, json_schema_extra={"enum": [status.value for status in ConditionStatus]})
    """True, False or Unknown."""
    reason: str = Field(max_length=1024)
    """Why, in one CamelCase word that programs may match."""
    message: str = Field("", max_length=32768)
    """Why, for people, with the fix where there is one."""
    last_transition_time: str = Field(max_length=32, json_schema_extra={"format": "date-time"})
    """When the status last changed."""
    observed_generation: int = Field(0, ge=0, json_schema_extra={"format": "int64"})
    """Generation of the spec that the condition speaks of."""


class RoleStatus(ApiModel):
    """Pods of one role."""

    name: str = Field(max_length=32)
    """Name of the role."""
    desired: int = Field(ge=0)
    """Pods that should run."""
    ready: int = Field(ge=0)
    """Pods that are ready."""
    updated: int = Field(ge=0)
    """Pods of the newest template."""
    model_versions: list[Annotated[str, Field(max_length=63)]] = Field(
        default_factory=list, max_length=16, json_schema_extra={"x-kubernetes-list-type": "set"}
    )
    """Model versions that ready pods serve; two while a new one rolls out."""


class EngineVersionOrigin(StrEnum):
    """Whence the operator knows the engine's version."""

    TAG = "Tag"
    SPEC = "Spec"
    ASSUMED = "Assumed"


class EngineVersionStatus(ApiModel):
    """The engine version that flags are rendered for."""

    version: str = Field(max_length=32)
    """The version."""
    origin: EngineVersionOrigin
    """Tag: read from the image's tag. Spec: spec.engine.version. Assumed: the tag says nothing; set
    spec.engine.version."""


class Status(ApiModel):
    """What is. Can be recomputed from the cluster at any time."""

    observed_generation: int = Field(0, ge=0, json_schema_extra={"format": "int64"})
    """Generation of the spec that the operator last acted on."""
    url: str = Field("", max_length=1024)
    """Address of the OpenAI-compatible endpoint inside the cluster."""
    topology: str = Field("", max_length=32)
    """`E|PD` or `Aggregated`."""
    model_version: str = Field("", max_length=63)
    """Key of everything that can change an embedding; names the directory in the cache and the pods' label
    `epd.dev/model-version`."""
    engine_version: EngineVersionStatus | None = None
    """The vLLM version that flags are rendered for."""
    roles: list[RoleStatus] = Field(
        default_factory=list,
        max_length=8,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    """Pods by role."""
    role_summary: str = Field("", max_length=64)
    """Ready pods by role, for example `2E 3/4PD`: ready/desired when they differ."""
    encoder_cache: EncoderCacheStatus | None = None
    """The claim of the encoder cache, and what its collector says of it."""
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=32,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    """What is true of the object. Available: a request can be answered now. Ready: everything is as the spec says."""
