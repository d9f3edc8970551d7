"""`spec.proxy`: the endpoint in front of the engines. Shapes only."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, WithJsonSchema

from epd.api.fields import ApiModel, Duration, PodTemplate, Quantity, Resources

# a host name, with "*." for all below it, or "*" for any public address
Domain = Annotated[
    str, Field(min_length=1, max_length=253, pattern=r"^(\*|(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?)$")
]


class EncoderFailurePolicy(StrEnum):
    """What the proxy does when no encoder answers."""

    FALLBACK = "Fallback"
    FAIL = "Fail"


class ProxyTimeouts(ApiModel):
    """How long the proxy waits."""

    request: Duration = "10m"
    """For a whole request, for example `10m`. Also the default of drainTimeout of generating roles."""
    encode: Duration = "2m"
    """For an encoder, before encoderFailurePolicy applies, for example `2m`."""
    idle: Duration = "60s"
    """For the next request on an open connection, for example `60s`."""


class ProxyLimits(ApiModel):
    """How much one proxy pod takes on."""

    max_in_flight: int = Field(1024, ge=1, le=1_000_000)
    """Requests at once per proxy pod; more are answered 429."""
    max_fallback_encodes: int = Field(8, ge=0, le=1_000_000)
    """Requests at once per proxy pod whose media the prefill side encodes because no encoder did; more are answered
    503."""


class ProxyService(ApiModel):
    """The Service in front of the proxy."""

    type: str = Field("ClusterIP", max_length=16, json_schema_extra={"enum": ["ClusterIP", "NodePort", "LoadBalancer"]})
    """Type of the Service: ClusterIP, NodePort or LoadBalancer."""
    port: int = Field(80, ge=1, le=65535)
    """Port of the Service."""
    annotations: Annotated[
        dict[str, str],
        WithJsonSchema(
            {
                "type": "object",
                "additionalProperties": {"type": "string", "maxLength": 4096},
                "maxProperties": 64,
            }
        ),
    ] = Field(default_factory=dict)
    """Annotations of the Service, for example of a cloud's load balancer."""


class ProxyMedia(ApiModel):
    """What media clients may send."""

    allowed_domains: list[Domain] = Field(
        default_factory=list, max_length=64, json_schema_extra={"x-kubernetes-list-type": "set"}
    )
    """Hosts that media may be fetched from, for example `[images.example.com]`; `*` is any public address. Empty: only
    `data:` URLs."""
    max_body_size: Quantity = "64Mi"
    """Largest request body, for example `64Mi`; larger ones are answered 413. At most 1Gi."""


class ProxySpec(ApiModel):
    """The OpenAI-compatible endpoint in front of the engines."""

    replicas: int = Field(2, ge=0, le=100)
    """Number of proxy pods."""
    encoder_failure_policy: EncoderFailurePolicy = EncoderFailurePolicy.FALLBACK
    """What happens when no encoder answers: Fallback lets the prefill side encode, bounded by
    limits.maxFallbackEncodes; Fail answers 503."""
    timeouts: ProxyTimeouts = Field(default_factory=ProxyTimeouts)
    """How long the proxy waits."""
    limits: ProxyLimits = Field(default_factory=ProxyLimits)
    """How much one proxy pod takes on."""
    service: ProxyService = Field(default_factory=ProxyService)
    """The Service whose address is the deployment's URL."""
    media: ProxyMedia = Field(default_factory=ProxyMedia)
    """What media clients may send."""
    resources: Resources = Field(
        default_factory=lambda: Resources(requests={"cpu": "250m", "memory": "256Mi"}, limits={"memory": "1Gi"})
    )
    """Requests and limits of each proxy pod, taken as a whole. Default: `{requests: {cpu: 250m, memory: 256Mi}, limits:
    {memory: 1Gi}}`."""
    pod_template: PodTemplate = Field(default_factory=dict)
    """metadata and spec of the proxy's pods, merged strategically; the container is named `proxy`. Refused in it:
    image, command, args and ports of that container, and terminationGracePeriodSeconds, serviceAccountName and
    restartPolicy of the pod."""
