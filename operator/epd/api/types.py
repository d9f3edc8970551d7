"""`EPDDeployment` as pydantic models: the one source of the CustomResourceDefinition and of what the operator reads.

Parses and describes; decides nothing. Unknown fields are ignored here (the API server's schema refuses them), so that
an operator still works beside a newer CustomResourceDefinition.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, WithJsonSchema

from epd.api import shapes
from epd.api.encoder_cache import (
    ConnectorKind,
    CustomConnector,
    EncoderCacheSpec,
    GarbageCollection,
    HashAlgorithm,
    ReclaimPolicy,
    Volume,
    VolumeClaimTemplate,
)
from epd.api.encoder_cache_status import (
    CachedVersionStatus,
    EncoderCacheStatus,
    LastCollectionStatus,
    PolicyStatus,
    encoder_cache_status,
)
from epd.api.engine import (
    Device,
    EngineSpec,
    EngineTLS,
    ImagePullPolicy,
    Parallelism,
    RoleSpec,
    RollingUpdate,
)
from epd.api.fields import (
    ApiModel,
    Args,
    ClaimRef,
    Duration,
    Env,
    EnvVar,
    JSONObject,
    LocalObjectRef,
    Resources,
    SecretKeyRef,
)
from epd.api.model import HuggingFaceSource, ModelSource, ModelSpec
from epd.api.proxy import (
    AccessLogPolicy,
    Affinity,
    APIKeys,
    EncoderFailurePolicy,
    ProxyAccessLog,
    ProxyAuth,
    ProxyCORS,
    ProxyLimits,
    ProxyMedia,
    ProxyService,
    ProxySpec,
    ProxyTimeouts,
    ProxyTLS,
    RequestPriority,
    TenantIsolation,
)
from epd.api.scaling import Scaling, ScalingMode
from epd.api.status import (
    Condition,
    ConditionStatus,
    EngineVersionOrigin,
    EngineVersionStatus,
    RoleStatus,
    Status,
)

__all__ = [
    "APIKeys",
    "AccessLogPolicy",
    "Affinity",
    "ApiModel",
    "Args",
    "CachedVersionStatus",
    "ClaimRef",
    "Condition",
    "ConditionStatus",
    "ConnectorKind",
    "CustomConnector",
    "Device",
    "Duration",
    "EPDDeployment",
    "EncoderCacheSpec",
    "EncoderCacheStatus",
    "EncoderFailurePolicy",
    "EngineSpec",
    "EngineTLS",
    "EngineVersionOrigin",
    "EngineVersionStatus",
    "Env",
    "EnvVar",
    "GarbageCollection",
    "HashAlgorithm",
    "HuggingFaceSource",
    "ImagePullPolicy",
    "JSONObject",
    "LastCollectionStatus",
    "LocalObjectRef",
    "ModelSource",
    "ModelSpec",
    "ObjectMeta",
    "Parallelism",
    "PolicyStatus",
    "ProxyAccessLog",
    "ProxyAuth",
    "ProxyCORS",
    "ProxyLimits",
    "ProxyMedia",
    "ProxyService",
    "ProxySpec",
    "ProxyTLS",
    "ProxyTimeouts",
    "ReclaimPolicy",
    "RequestPriority",
    "Resources",
    "RoleSpec",
    "RoleStatus",
    "RollingUpdate",
    "Scaling",
    "ScalingMode",
    "SecretKeyRef",
    "Spec",
    "Status",
    "TenantIsolation",
    "Topology",
    "Volume",
    "VolumeClaimTemplate",
    "encoder_cache_status",
]


class Topology(StrEnum):
    """Which stages are separate workloads."""

    E_PD = "E|PD"
    AGGREGATED = "Aggregated"


class Spec(ApiModel):
    """What the user wants."""

    model: ModelSpec
    """Which model runs."""
    engine: EngineSpec
    """What the engines of all roles share."""
    image_pull_secrets: list[LocalObjectRef] = Field(
        default_factory=list,
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    """Secrets for pulling images, of every pod, for example `[{name: registry}]`."""
    encode: RoleSpec | None = None
    """Engines that only encode media (E). Absent: prefillDecode encodes for itself (aggregated)."""
    prefill_decode: RoleSpec | None = None
    """Engines that prefill and generate (PD)."""
    encoder_cache: EncoderCacheSpec | None = None
    """The encoder cache (EC), where embeddings of media items are kept. Required with encode."""
    proxy: ProxySpec = Field(default_factory=ProxySpec)
    """The OpenAI-compatible endpoint in front of the engines."""
    security_context: Annotated[JSONObject, WithJsonSchema(shapes.POD_SECURITY_CONTEXT)] = Field(
        default_factory=lambda: {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "fsGroup": 1000,
            "fsGroupChangePolicy": "OnRootMismatch",
        }
    )
    """Security context of every engine pod, taken as a whole: `{runAsNonRoot: true}` leaves the ids to the platform.
    Default: `{runAsNonRoot: true, runAsUser: 1000, runAsGroup: 1000, fsGroup: 1000, fsGroupChangePolicy:
    OnRootMismatch}`."""
    paused: bool = False
    """Leaves everything running and changes nothing until it is false again; status goes on."""
    suspend: bool = False
    """Stops every engine and frees the devices; claim, Service and proxy stay, and the proxy answers 503."""
    restarted_at: str = Field("", max_length=64)
    """Any text; change it to restart all roles, for example `"2026-11-29T12:00:00Z"`."""


class ObjectMeta(ApiModel):
    """The parts of metadata that the operator reads."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    finalizers: list[str] = Field(default_factory=list)
    annotations: dict[str, str] = Field(default_factory=dict)


class EPDDeployment(ApiModel):
    """One multimodal model on vLLM, its stages as separate workloads."""

    metadata: ObjectMeta
    spec: Spec
    status: Status = Field(default_factory=Status)
