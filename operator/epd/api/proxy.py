"""`spec.proxy`: the endpoint in front of the engines. Shapes only."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, WithJsonSchema

from epd.api.fields import ApiModel, Duration, PodTemplate, Quantity, Resources, SecretName
from epd.api.scaling import Scaling, ScalingMode

# a host name, "*." and a name for all below it, or "*" for any public address
Domain = Annotated[
    str, Field(min_length=1, max_length=253, pattern=r"^(\*|(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?)$")
]


# what a browser sends as `Origin`, or "*" for any page
Origin = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^(\*|https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?)$")]

DEFAULT_REPLICAS: Final = 2
"""One may be away, with its node or in a rollout, and requests go on."""

DEFAULT_PORTS: Final = {"http": 80, "https": 443}
"""Scheme -> the port that a URL need not name."""


class EncoderFailurePolicy(StrEnum):
    """What the proxy does when no encoder answers."""

    FALLBACK = "Fallback"
    FAIL = "Fail"


class Affinity(StrEnum):
    """What requests have in common that should meet the same engine."""

    NONE = "None"
    SESSION = "Session"
    PREFIX = "Prefix"


class ProxyTimeouts(ApiModel):
    """How long the proxy waits."""

    request: Duration = "10m"
    """For a whole request, for example `10m`. Also the default of drainTimeout of generating roles."""
    encode: Duration = "2m"
    """For an encoder, before encoderFailurePolicy applies, for example `2m`."""
    idle: Duration = "60s"
    """For the next bytes of an answer that has begun, for example `60s`; then it is broken off."""
    queue: Duration = "10s"
    """For an engine with room, for example `30s`, then 503; limits.maxQueued says how many may wait."""


class ProxyLimits(ApiModel):
    """How much one proxy pod takes on."""

    max_in_flight: int = Field(1024, ge=1, le=1_000_000)
    """Requests at once per proxy pod; more are answered 429."""
    max_connections: int | None = Field(None, ge=1, le=1_000_000)
    """Clients that are connected at once to a proxy pod, for example `20000`; further ones are answered 503 unless
    others are idle, which leave. Default: a third of the files that the container may have open, 8192 at most."""
    # As many sequences as vLLM runs at a time on its largest GPUs: see epd.proxy.settings, which has the same defaults.
    max_per_engine: int = Field(1024, ge=1, le=1_000_000)
    """Requests at once from one proxy pod to one engine of the prefill side, for example `64`; further ones wait in the
    proxy, where any engine that gets room can take them."""
    max_queued: int = Field(256, ge=0, le=1_000_000)
    """Requests per proxy pod that wait for an engine with room, for timeouts.queue at most; more are answered 429. 0:
    none waits."""
    max_fallback_encodes: int = Field(8, ge=0, le=1_000_000)
    """Requests at once per proxy pod whose media the prefill side encodes because no encoder did; more are answered
    503."""
    max_per_tenant: int | None = Field(None, ge=1, le=1_000_000)
    """Requests at once per tenant and proxy pod, for example `32`; more are answered 429. Needs auth.apiKeys. Absent:
    no limit but the others."""


class ProxyService(ApiModel):
    """The Service in front of the proxy."""

    type: str = Field("ClusterIP", max_length=16, json_schema_extra={"enum": ["ClusterIP", "NodePort", "LoadBalancer"]})
    """Type of the Service: ClusterIP, NodePort or LoadBalancer."""
    port: int | None = Field(None, ge=1, le=65535)
    """Port of the Service, for example `8080`. Default: 443 with proxy.tls, else 80."""
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
    """Hosts that media may be fetched from, for example `[images.example.com, "*.cdn.example.com"]`; `*.` stands for
    all names below, and `*` alone for any public address. With either, the proxy alone checks the hosts, since vLLM
    compares whole names. Empty: only `data:` URLs."""
    max_body_size: Quantity = "64Mi"
    """Largest request body, for example `64Mi`; larger ones are answered 413. At most 1Gi, and a quarter of
    resources.limits.memory."""


class ProxyTLS(ApiModel):
    """The certificate of the endpoint."""

    secret_name: SecretName
    """Secret of type kubernetes.io/tls (`tls.crt`, `tls.key`), for example one that cert-manager renews. What changes
    in it is taken for new connections within about two minutes, without a restart."""


class APIKeys(ApiModel):
    """The keys that clients must show."""

    secret_name: SecretName
    """Secret with one entry per tenant: its key is the tenant's name, its value the tenant's API keys, one a line and
    16 characters or more each; lines that begin with `#` mean nothing. What changes in it is in force within about two
    minutes, without a restart."""


class TenantIsolation(StrEnum):
    """What tenants share."""

    SHARED = "Shared"
    SALTED = "Salted"


class RequestPriority(StrEnum):
    """What becomes of the `priority` that a request asks for."""

    FORWARD = "Forward"
    IGNORE = "Ignore"


class ProxyAuth(ApiModel):
    """Who may send requests, and what they have of each other."""

    api_keys: APIKeys | None = None
    """The keys that clients must show, as `Authorization: Bearer` or `x-api-key`; others are answered 401. Absent:
    everyone who reaches the Service may send."""
    tenant_isolation: TenantIsolation = TenantIsolation.SHARED
    """What tenants share. Shared: an item that one tenant has sent is not encoded again for another, who could tell by
    the time it takes. Salted: prefixes, and embeddings of media that chats bring along, are cached for each tenant
    apart; not those of media given by URL, or to `/v1/responses` and `/v1/messages`, which engines name by their
    content: who sends exactly what another tenant has sent can tell by the time it takes, and nothing else. Needs
    apiKeys, and finds nothing of what was cached before."""
    request_priority: RequestPriority = RequestPriority.FORWARD
    """What becomes of `priority` in requests, by which engines with `--scheduling-policy priority` serve one before the
    other. Forward: engines get it; Ignore: they don't, so that nobody goes before others."""


class ProxyCORS(ApiModel):
    """Which web pages may read answers."""

    allowed_origins: list[Origin] = Field(
        default_factory=list, max_length=64, json_schema_extra={"x-kubernetes-list-type": "set"}
    )
    """Origins of pages whose scripts may read answers, for example `[https://chat.example.com]`; `*` is any. Empty:
    none."""


class AccessLogPolicy(StrEnum):
    """Which requests get a line in the log."""

    NONE = "None"
    ERRORS = "Errors"
    ALL = "All"


class ProxyAccessLog(ApiModel):
    """Which requests get a line in the log of the proxy's pods."""

    policy: AccessLogPolicy = AccessLogPolicy.ERRORS
    """Which requests get a line of JSON on standard output: Errors are those answered 5xx and streams that broke. Never
    with bodies, keys or URLs of media."""
    sample_percent: int | None = Field(None, ge=1, le=100)
    """With policy: Errors, also this share of all requests, in percent, for example `5`. Absent: none."""


class ProxySpec(ApiModel):
    """The OpenAI-compatible endpoint in front of the engines."""

    replicas: int | None = Field(None, ge=0, le=100)
    """Number of proxy pods. Default: 2. Must be absent when scaling.mode is External."""
    scaling: Scaling = Field(default_factory=Scaling)
    """Who sets the number of proxy pods."""
    encoder_failure_policy: EncoderFailurePolicy = EncoderFailurePolicy.FALLBACK
    """What happens when no encoder answers: Fallback lets the prefill side encode, bounded by
    limits.maxFallbackEncodes; Fail answers 503."""
    affinity: Affinity = Affinity.NONE
    """Which requests should meet the same engine of the prefill side, which keeps what it has read of them, as far as
    none gets more than 1.25 times its share. None: each goes where the least is in flight; Session: those with the same
    `x-session-id` header or `session_id`; Prefix: those that begin alike, or have the same `prompt_cache_key`."""
    timeouts: ProxyTimeouts = Field(default_factory=ProxyTimeouts)
    """How long the proxy waits."""
    limits: ProxyLimits = Field(default_factory=ProxyLimits)
    """How much one proxy pod takes on."""
    tls: ProxyTLS | None = None
    """The certificate of the endpoint. Absent: plain HTTP."""
    auth: ProxyAuth = Field(default_factory=ProxyAuth)
    """Who may send requests."""
    cors: ProxyCORS = Field(default_factory=ProxyCORS)
    """Which web pages may read answers."""
    access_log: ProxyAccessLog = Field(default_factory=ProxyAccessLog)
    """Which requests get a line in the log of the proxy's pods."""
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
    image, command, args and ports of that container, the volumes `tls`, `api-keys` and `engine-ca`, and
    terminationGracePeriodSeconds, serviceAccountName and restartPolicy of the pod."""

    @property
    def desired_replicas(self) -> int | None:
        """Number of pods that the operator sets; None where a scaler does."""
        if self.scaling.mode is ScalingMode.EXTERNAL:
            return None
        return DEFAULT_REPLICAS if self.replicas is None else self.replicas

    @property
    def scheme(self) -> str:
        """What the endpoint speaks: `https` or `http`."""
        return "https" if self.tls else "http"

    @property
    def port(self) -> int:
        """Port of the Service."""
        return self.service.port or DEFAULT_PORTS[self.scheme]
