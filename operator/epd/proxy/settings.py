"""What one proxy process is told at its start: frozen values, read from flags.

Never read from files or the environment, and never changed while the process runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from epd.api.names import Role
from epd.api.quantity import quantity_value
from epd.proxy.access_log import AccessPolicy
from epd.proxy.affinity import Affinity
from epd.proxy.connectors import Connector
from epd.proxy.isolation import TenantIsolation
from epd.proxy.media import MediaPolicy
from epd.proxy.pods import Member

NO_SERVERS = frozenset({"disable", "none", ""})
"""What vLLM's disagg_epd_proxy.py takes for "no prefill servers"."""
STATIC_PAIRING = "static"


class EncoderFailurePolicy(StrEnum):
    """`spec.proxy.encoderFailurePolicy`."""

    FALLBACK = "Fallback"
    FAIL = "Fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of work; times in seconds, `max_body_bytes` in bytes."""

    request_seconds: float = 600
    encode_seconds: float = 120
    idle_seconds: float = 60
    max_connections: int | None = None
    """Clients that are connected; by what descriptors and memory allow if None."""
    max_in_flight: int = 1024
    max_in_flight_per_engine: int = 1024
    """Of the prefill side. As many sequences as vLLM runs at a time on its largest GPUs (engine/arg_utils.py, 1024 from
    70 GiB on): beyond that requests only wait in an engine, which they can't leave for another. 0 for any number."""
    queue: int = 256
    """Requests that wait for an engine with room: a quarter of those in flight, so that most of them are at work."""
    queue_seconds: float = 10
    """Longest wait. OpenAI's SDK tries again twice, so a refusal with Retry-After helps its users more than a longer
    wait, during which whoever asked has mostly left."""
    max_fallback_encodes: int = 8
    max_in_flight_per_tenant: int = 0
    """0 for any number."""
    max_body_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """How the process ends; times in seconds."""

    delay_seconds: float = 5
    """How long requests are still accepted after SIGTERM: endpoints follow a deletion within a few seconds."""
    timeout_seconds: float = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Probing:
    """How engines given by flag are found to be well; times in seconds."""

    interval_seconds: float = 2.0
    """A dead engine costs each request one retry until it is noticed."""
    timeout_seconds: float = 5.0
    """vLLM's `/health` shares its event loop with tokenization and can take seconds under load."""
    failures: int = 2
    """One slow answer is no death; a refused connection is, and counts at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTls:
    """How engines are reached by TLS. All files are PEM and may change while the process runs."""

    pods: bool = False
    """Whether watched pods are reached by TLS; engines given by flag say so in their URLs."""
    ca: Path | None = None
    """Bundle of the CAs that engines' certificates may come from; the system's if there is none."""
    server_name: str = ""
    """The name that certificates have to show; that of the address if empty."""
    certificate: Path | None = None
    """Certificate chain to show to engines that ask for one; with `key`."""
    key: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything. Members are either watched (`namespace`, `epd`) or given (`static_members`)."""

    host: str
    port: int
    admin_port: int
    roles: frozenset[Role]
    namespace: str = ""
    epd: str = ""
    static_members: tuple[Member, ...] = ()
    probing: Probing = field(default_factory=Probing)
    policy: EncoderFailurePolicy = EncoderFailurePolicy.FALLBACK
    limits: Limits = field(default_factory=Limits)
    media: MediaPolicy = field(default_factory=MediaPolicy)
    rewrite: bool = False
    """Whether requests may go to the prefill side without their media. Off by default: a missing entry then kills an
    engine with ECExampleConnector, while our own connector fails that one request."""
    connector: Connector = Connector.EXAMPLE
    """By default the one that allows least of the two that are files."""
    hint_seconds: float = 0
    """How long an item that was encoded counts as being in the store; 0 for not at all. Less than what the collector
    leaves alone (`minIdle`), which whoever starts the proxy knows."""
    affinity: Affinity = Affinity.NONE
    drain: Drain = field(default_factory=Drain)
    suspended: bool = False
    debug: bool = False
    uds: Path | None = None
    """Path of a unix socket for the data port, in place of TCP."""
    tls_certificate: Path | None = None
    """Certificate chain of the data port, in PEM; with `tls_key`."""
    tls_key: Path | None = None
    engine_tls: EngineTls | None = None
    """None where every engine is reached in the clear."""
    allowed_origins: frozenset[str] = frozenset()
    """Origins of web pages whose scripts may read answers; `*` for any."""
    api_keys: Path | None = None
    """Directory with a file of API keys for each tenant; None where requests need no key."""
    tenant_isolation: TenantIsolation = TenantIsolation.SHARED
    access_log: AccessPolicy = field(default_factory=AccessPolicy)
    opened_routes: frozenset[str] = frozenset()
    """Those of the routes that are closed by default (`routes.OPENABLE`) that are there."""

    @property
    def encodes(self) -> bool:
        """Whether the topology has encoders."""
        return Role.ENCODE in self.roles

    @property
    def split(self) -> bool:
        """Whether prefill and decode are engines of their own."""
        return Role.DECODE in self.roles


def parse_bytes(text: str) -> int:
    """Bytes of a quantity such as `64Mi`. Raises ValueError."""
    value = int(quantity_value(text))
    if value < 1:
        raise ValueError(f"{text!r} is less than one byte")
    return value


def parse_roles(text: str) -> frozenset[Role]:
    """Roles of a comma-separated list. Raises ValueError where they are no topology that this proxy serves."""
    try:
        roles = frozenset(Role(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise ValueError(f"{error}: roles are {', '.join(Role)}") from None
    if roles - {Role.ENCODE} not in ({Role.PREFILL_DECODE}, {Role.PREFILL, Role.DECODE}):
        raise ValueError("either prefill-decode, or prefill and decode must be among the roles")
    return roles


def parse_domains(text: str) -> frozenset[str]:
    """Host names of a comma-separated list, in lower case."""
    return frozenset(part.strip().lower().rstrip(".") for part in text.split(",") if part.strip())


def parse_origins(text: str) -> frozenset[str]:
    """Origins of a comma-separated list, such as `https://chat.example.com`, or `*`. Raises ValueError."""
    origins = frozenset(part.strip().lower() for part in text.split(",") if part.strip())
    for origin in origins - {"*"}:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or not parts.netloc or origin != f"{parts.scheme}://{parts.netloc}":
            raise ValueError(f"{origin!r} is no origin such as https://chat.example.com")
    return origins


def parse_servers(text: str, *, role: Role) -> tuple[Member, ...]:
    """Members of a comma-separated list of base URLs (`http`, `https`, `unix`). Raises ValueError.

    They aren't ready before they were probed.
    """
    members = []
    for url in (part.strip().rstrip("/") for part in text.split(",") if part.strip()):
        name, address = _server(url)
        members.append(Member(name=name, role=role, pairing=STATIC_PAIRING, address=address, ready=False))
    return tuple(members)


def parse_push_addresses(text: str) -> tuple[str, ...]:
    """Addresses of a comma-separated list, such as `tcp://10.0.0.1:14579`. Raises ValueError."""
    addresses = tuple(part.strip() for part in text.split(",") if part.strip())
    for address in addresses:
        parts = urlsplit(address)
        try:
            valid = parts.scheme == "tcp" and parts.hostname and parts.port and not parts.path
        except ValueError:
            valid = False
        if not valid:
            raise ValueError(f"{address!r} is no address such as tcp://10.0.0.1:14579")
    return addresses


def _server(url: str) -> tuple[str, str]:
    """Name and address of an engine. Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme == "unix" and not parts.netloc and parts.path.startswith("/"):
        return parts.path, f"unix:{parts.path}"
    try:
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # the port
        valid = False
    if not valid or parts.path or parts.query:
        raise ValueError(
            f"{url!r} is no base URL such as http://127.0.0.1:8000, https://engine:8000 or unix:/run/engine"
        )
    # engines are sent no user and no password, and pages, spans and logs show addresses
    host = parts.netloc.rpartition("@")[2]
    return host, f"{parts.scheme}://{host}"
