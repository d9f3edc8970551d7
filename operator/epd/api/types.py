"""`EPDDeployment` as pydantic models: the one source of the CustomResourceDefinition and of what the operator reads.

Parses and describes; decides nothing. Unknown fields are ignored here (the API server's schema refuses them), so that
an operator still works beside a newer CustomResourceDefinition.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from epd.api.quantity import DURATION_PATTERN

Duration = Annotated[str, Field(pattern=DURATION_PATTERN, min_length=2, max_length=18)]
JSONObject = dict[str, Any]
"""An object whose fields are not ours: kept as it is (`x-kubernetes-preserve-unknown-fields`)."""


class ApiModel(BaseModel):
    """camelCase on the wire, snake_case in Python, immutable."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")


class Topology(StrEnum):
    """Which stages are separate workloads."""

    E_PD = "E|PD"
    AGGREGATED = "Aggregated"


class SecretKeyRef(ApiModel):
    """One key of a Secret in the same namespace."""

    name: str = Field(max_length=253)
    key: str = Field(max_length=253)


class ClaimRef(ApiModel):
    """A PersistentVolumeClaim in the same namespace, and a directory in it."""

    claim_name: str = Field(max_length=253)
    sub_path: str = Field("", max_length=1024)


class HuggingFaceSource(ApiModel):
    """Weights from a hub."""

    token_secret_ref: SecretKeyRef | None = None
    cache_claim: ClaimRef | None = None
    offline: bool = False


class ModelSource(ApiModel):
    """Where the weights come from: exactly one member."""

    hugging_face: HuggingFaceSource | None = None
    persistent_volume_claim: ClaimRef | None = None


class ModelSpec(ApiModel):
    """Which model runs."""

    name: str = Field(min_length=1, max_length=253)
    revision: str | None = Field(None, min_length=1, max_length=253)
    served_names: list[Annotated[str, Field(min_length=1, max_length=253)]] = Field(default_factory=list, max_length=16)
    dtype: str = Field("auto", max_length=32)
    quantization: str | None = Field(None, min_length=1, max_length=64)
    max_model_len: int | None = Field(None, ge=1, le=100_000_000)
    processor_kwargs: JSONObject = Field(default_factory=dict)
    media_io_kwargs: JSONObject = Field(default_factory=dict, alias="mediaIOKwargs")
    media_limits: JSONObject = Field(default_factory=dict)
    source: ModelSource | None = None


class Device(StrEnum):
    """What the engines compute on."""

    AUTO = "Auto"
    CUDA = "CUDA"
    ROCM = "ROCm"
    CPU = "CPU"


class EnvVar(ApiModel):
    """An environment variable, as in a container."""

    name: str = Field(min_length=1, max_length=253)
    value: str | None = Field(None, max_length=4096)
    value_from: JSONObject | None = None


class ImagePullPolicy(StrEnum):
    """When the kubelet pulls the image."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


Args = Annotated[list[Annotated[str, Field(max_length=4096)]], Field(max_length=256)]
Env = Annotated[list[EnvVar], Field(max_length=128)]


class EngineSpec(ApiModel):
    """What all roles share."""

    image: str = Field(min_length=1, max_length=1024)
    image_pull_policy: ImagePullPolicy | None = None
    version: str | None = Field(None, pattern=r"^[0-9]+\.[0-9]+(\.[0-9]+)?$", max_length=32)
    device: Device = Device.AUTO
    args: Args = Field(default_factory=list)
    env: Env = Field(default_factory=list)
    pod_template: JSONObject = Field(default_factory=dict)


class LocalObjectRef(ApiModel):
    """An object of the same namespace, by name."""

    name: str = Field(min_length=1, max_length=253)


class ScalingMode(StrEnum):
    """Who sets the number of replicas."""

    STATIC = "Static"
    EXTERNAL = "External"


class Scaling(ApiModel):
    """Who sets the number of replicas of a role."""

    mode: ScalingMode = ScalingMode.STATIC


class Parallelism(ApiModel):
    """How one engine spreads over devices."""

    tensor: int = Field(1, ge=1, le=64)


class Resources(ApiModel):
    """Requests and limits of a container. Quantities are strings or integers."""

    limits: dict[str, str | int] = Field(default_factory=dict)
    requests: dict[str, str | int] = Field(default_factory=dict)


class RollingUpdate(ApiModel):
    """How many pods a rollout may add or take away."""

    max_surge: int | str | None = None
    max_unavailable: int | str | None = None


class RoleSpec(ApiModel):
    """One role: a Deployment of engines."""

    replicas: int | None = Field(None, ge=0, le=1000)
    scaling: Scaling = Field(default_factory=Scaling)
    parallelism: Parallelism = Field(default_factory=Parallelism)
    resources: Resources = Field(default_factory=Resources)
    port: int = Field(8000, ge=1, le=65535)
    args: Args = Field(default_factory=list)
    env: Env = Field(default_factory=list)
    rolling_update: RollingUpdate | None = None
    startup_timeout: Duration = "30m"
    drain_timeout: Duration | None = None
    pod_template: JSONObject = Field(default_factory=dict)


class ConnectorKind(StrEnum):
    """How entries get from encoder to prefill side."""

    EXAMPLE = "Example"
    CUSTOM = "Custom"


class CustomConnector(ApiModel):
    """A connector class of your own, importable in the engine image."""

    class_name: str = Field(alias="class", min_length=1, max_length=253)
    module: str = Field(min_length=1, max_length=253)


class HashAlgorithm(StrEnum):
    """The hash of media items."""

    BLAKE3 = "BLAKE3"
    SHA256 = "SHA256"


class VolumeClaimTemplate(ApiModel):
    """A PersistentVolumeClaim to make, as in a StatefulSet."""

    metadata: JSONObject = Field(default_factory=dict)
    spec: JSONObject


class Volume(ApiModel):
    """Where the encoder cache lies: exactly one member."""

    volume_claim_template: VolumeClaimTemplate | None = None
    persistent_volume_claim: ClaimRef | None = None


class ReclaimPolicy(StrEnum):
    """What becomes of the claim when the EPDDeployment goes."""

    DELETE = "Delete"
    RETAIN = "Retain"


class EncoderCacheSpec(ApiModel):
    """The encoder cache (EC): where embeddings of media items are kept."""

    connector: ConnectorKind = ConnectorKind.EXAMPLE
    custom: CustomConnector | None = None
    extra_config: JSONObject = Field(default_factory=dict)
    hash_algorithm: HashAlgorithm = HashAlgorithm.BLAKE3
    salt: str = Field("", max_length=253)
    volume: Volume | None = None
    reclaim_policy: ReclaimPolicy | None = None


class EncoderFailurePolicy(StrEnum):
    """What the proxy does when no encoder answers."""

    FALLBACK = "Fallback"
    FAIL = "Fail"


class ProxyTimeouts(ApiModel):
    """How long the proxy waits."""

    request: Duration = "10m"
    encode: Duration = "2m"
    idle: Duration = "60s"


class ProxyLimits(ApiModel):
    """How much one proxy pod takes on."""

    max_in_flight: int = Field(1024, ge=1, le=1_000_000)
    max_fallback_encodes: int = Field(8, ge=0, le=1_000_000)


class ProxyService(ApiModel):
    """The Service in front of the proxy."""

    type: str = "ClusterIP"
    port: int = Field(80, ge=1, le=65535)
    annotations: dict[str, str] = Field(default_factory=dict)


class ProxyMedia(ApiModel):
    """What media clients may send."""

    allowed_domains: list[Annotated[str, Field(min_length=1, max_length=253)]] = Field(
        default_factory=list, max_length=64
    )
    max_body_size: str | int = "64Mi"


class ProxySpec(ApiModel):
    """The OpenAI-compatible endpoint in front of the engines."""

    replicas: int = Field(2, ge=0, le=100)
    encoder_failure_policy: EncoderFailurePolicy = EncoderFailurePolicy.FALLBACK
    timeouts: ProxyTimeouts = Field(default_factory=ProxyTimeouts)
    limits: ProxyLimits = Field(default_factory=ProxyLimits)
    service: ProxyService = Field(default_factory=ProxyService)
    media: ProxyMedia = Field(default_factory=ProxyMedia)
    resources: Resources = Field(
        default_factory=lambda: Resources(requests={"cpu": "250m", "memory": "256Mi"}, limits={"memory": "1Gi"})
    )
    pod_template: JSONObject = Field(default_factory=dict)


class Spec(ApiModel):
    """What the user wants."""

    model: ModelSpec
    engine: EngineSpec
    image_pull_secrets: list[LocalObjectRef] = Field(default_factory=list, max_length=16)
    encode: RoleSpec | None = None
    prefill_decode: RoleSpec | None = None
    encoder_cache: EncoderCacheSpec | None = None
    proxy: ProxySpec = Field(default_factory=ProxySpec)
    security_context: JSONObject = Field(
        default_factory=lambda: {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "fsGroup": 1000,
            "fsGroupChangePolicy": "OnRootMismatch",
        }
    )
    paused: bool = False
    suspend: bool = False
    restarted_at: str = Field("", max_length=64)


class Condition(ApiModel):
    """One statement about the object, in the shape of metav1.Condition."""

    type: str
    status: str
    reason: str
    message: str = ""
    last_transition_time: str
    observed_generation: int = 0


class RoleStatus(ApiModel):
    """Pods of one role."""

    name: str
    desired: int
    ready: int
    updated: int
    model_versions: list[str] = Field(default_factory=list)


class EngineVersionOrigin(StrEnum):
    """Whence the operator knows the engine's version."""

    TAG = "Tag"
    SPEC = "Spec"
    ASSUMED = "Assumed"


class EngineVersionStatus(ApiModel):
    """The engine version that flags are rendered for."""

    version: str
    origin: EngineVersionOrigin


class EncoderCacheStatus(ApiModel):
    """The claim of the encoder cache as the cluster has it."""

    claim: str
    phase: str = ""
    capacity: str = ""


class Status(ApiModel):
    """What is. Can be recomputed from the cluster at any time."""

    observed_generation: int = 0
    url: str = ""
    topology: str = ""
    model_version: str = ""
    engine_version: EngineVersionStatus | None = None
    roles: list[RoleStatus] = Field(default_factory=list)
    role_summary: str = ""
    encoder_cache: EncoderCacheStatus | None = None
    conditions: list[Condition] = Field(default_factory=list)


class ObjectMeta(ApiModel):
    """The parts of metadata that the operator reads."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None


class EPDDeployment(ApiModel):
    """One multimodal model on vLLM, its stages as separate workloads."""

    metadata: ObjectMeta
    spec: Spec
    status: Status = Field(default_factory=Status)
