"""`spec.engine` and the roles: the vLLM engines and how they are run. Shapes only."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from epd.api.fields import ApiModel, Args, Duration, Env, IntOrPercent, PodTemplate, Resources, SecretName
from epd.api.scaling import Scaling


class Device(StrEnum):
    """What the engines compute on."""

    AUTO = "Auto"
    CUDA = "CUDA"
    ROCM = "ROCm"
    CPU = "CPU"


class ImagePullPolicy(StrEnum):
    """When the kubelet pulls the image."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class EngineTLS(ApiModel):
    """The certificate of the engines, between them and the proxy."""

    secret_name: SecretName
    """Secret of type kubernetes.io/tls (`tls.crt`, `tls.key`) with the engines' certificate, and in `ca.crt` the CAs
    that the proxy trusts it by, for example one that cert-manager makes with a CA of its own. What changes in it is
    taken for new connections within about two minutes, without a restart."""
    server_name: str | None = Field(
        None, min_length=1, max_length=253, pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$"
    )
    """DNS name that the certificate is for, one for all engines, since their addresses change. Default:
    `<name>-engine.<namespace>.svc`."""


class EngineSpec(ApiModel):
    """What all roles share."""

    image: str = Field(min_length=1, max_length=1024, pattern=r"^\S+$")
    """Image with vLLM, for example `vllm/vllm-openai:v0.33.0`."""
    image_pull_policy: ImagePullPolicy | None = None
    """When the kubelet pulls the image: Always, IfNotPresent or Never. Default: as Kubernetes decides by the tag."""
    version: str | None = Field(None, pattern=r"^[0-9]+\.[0-9]+(\.[0-9]+)?$", max_length=32)
    """vLLM's version in the image, for example `"0.33.0"`; flags differ between versions. Default: read from the
    image's tag; status.engineVersion says which and whence."""
    device: Device = Device.AUTO
    """What the engines compute on: Auto goes by the resource names in limits."""
    args: Args = Field(default_factory=list)
    """Further flags of every engine, one item per word, for example `["--max-num-seqs", "64"]`. Flags that the operator
    sets are refused with the field to use. Encoders keep their own `--gpu-memory-utilization` and
    `--max-num-batched-tokens`; encode.args can change these."""
    tls: EngineTLS | None = None
    """The certificate of the engines, between them and the proxy. Absent: plain HTTP. While it comes, requests go on;
    while it goes, those of before can't be reached, so there is a gap until the first new engine is up."""
    env: Env = Field(default_factory=list)
    """Further environment of every engine. Variables that the operator sets are refused with the field to use."""
    pod_template: PodTemplate = Field(default_factory=dict)
    """metadata and spec of every engine pod, merged strategically; the container is named `engine`. Refused in it:
    image, command, args, ports, limits and requests of that container, variables that the operator sets, the volumes
    `encoder-cache`, `model` and `engine-tls`, user and group ids, and terminationGracePeriodSeconds, serviceAccountName
    and restartPolicy of the pod."""


class Parallelism(ApiModel):
    """How one engine spreads over devices."""

    tensor: int = Field(1, ge=1, le=64)
    """Devices per engine (`--tensor-parallel-size`); equals the number of GPUs in limits."""


class RollingUpdate(ApiModel):
    """How many pods a rollout may add or take away."""

    max_surge: IntOrPercent | None = None
    """Pods above the wanted number while rolling: a number or a percentage, for example `1` or `25%`."""
    max_unavailable: IntOrPercent | None = None
    """Pods below the wanted number while rolling: a number or a percentage, for example `1` or `25%`."""


class RoleSpec(ApiModel):
    """One role: a Deployment of engines."""

    replicas: int | None = Field(None, ge=0, le=1000)
    """Number of engines. Default: 1. Must be absent when scaling.mode is External."""
    scaling: Scaling = Field(default_factory=Scaling)
    """Who sets the number of engines."""
    parallelism: Parallelism = Field(default_factory=Parallelism)
    """How one engine spreads over devices."""
    resources: Resources = Field(default_factory=Resources)
    """Requests and limits of each engine, for example `{limits: {nvidia.com/gpu: 1, memory: 64Gi}}`."""
    port: int = Field(8000, ge=1, le=65535)
    """Port that the engines listen on."""
    args: Args = Field(default_factory=list)
    """Further flags of this role, after those of the engine. Flags that change cache keys or embeddings are refused
    here, since all roles must agree: they go into spec.engine.args."""
    env: Env = Field(default_factory=list)
    """Further environment of this role; wins over spec.engine.env."""
    rolling_update: RollingUpdate | None = None
    """How a rollout goes. Default: with devices and more than one replica `{maxSurge: 0, maxUnavailable: 1}`, which
    needs no spare device; else `{maxSurge: 1, maxUnavailable: 0}`."""
    startup_timeout: Duration = "30m"
    """How long an engine may take to load the model before it is restarted, for example `45m`."""
    drain_timeout: Duration | None = None
    """How long an engine may finish its requests when its pod stops, for example `10m`. Default:
    spec.proxy.timeouts.request; 1m for encode."""
    pod_template: PodTemplate = Field(default_factory=dict)
    """metadata and spec of this role's pods, merged over spec.engine.podTemplate with the same things refused."""
