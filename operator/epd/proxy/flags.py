"""The flags of `epd-proxy`, grouped as `--help` shows them. Never decides whether they fit together."""

from __future__ import annotations

import argparse
from pathlib import Path

from epd.api.names import Role
from epd.flags import add_count, add_duration, at_least, typed
from epd.proxy.access_log import AccessPolicy, parse_access_policy
from epd.proxy.affinity import Affinity
from epd.proxy.connectors import Connector
from epd.proxy.crowding import MOST_CONNECTIONS
from epd.proxy.identifiers import HashAlgorithm
from epd.proxy.isolation import TenantIsolation
from epd.proxy.routes import OPENABLE
from epd.proxy.script_flags import add_script_flags
from epd.proxy.settings import (
    Drain,
    EncoderFailurePolicy,
    Limits,
    parse_bytes,
    parse_domains,
    parse_origins,
    parse_push_addresses,
    parse_roles,
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add all."""
    _add_members(parser)
    _add_engine_tls(parser)
    _add_ports(parser)
    _add_policy(parser)
    _add_limits(parser)
    _add_media(parser)
    _add_tenants(parser)
    add_script_flags(parser)


def _add_members(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("engines found by watching pods")
    group.add_argument("--namespace", default="", metavar="NS", help="namespace of the pods")
    group.add_argument("--epd", default="", metavar="NAME", help="name of the EPDDeployment (label epd.dev/name)")
    group.add_argument(
        "--roles",
        type=typed(parse_roles),
        default=frozenset({Role.ENCODE, Role.PREFILL_DECODE}),
        metavar="ROLES",
        help="roles of the topology: encode,prefill-decode (default), prefill-decode (aggregated), or either with "
        "prefill,decode in place of prefill-decode",
    )
    group = parser.add_argument_group("engines given by flag")
    servers = "comma-separated base URLs (http://, https:// or unix:/path)"
    group.add_argument("--encode-servers-urls", default="", metavar="URLS", help=f"encoders, {servers}")
    group.add_argument(
        "--prefill-servers-urls",
        default="",
        metavar="URLS",
        help='prefill engines, or "disable", "none" or empty where those that decode do both',
    )
    group.add_argument("--decode-servers-urls", default="", metavar="URLS", help=f"engines that answer, {servers}")
    group.add_argument(
        "--ec-consumer-zmq-addrs",
        type=typed(parse_push_addresses),
        default=(),
        metavar="ADDRESSES",
        help="for --connector Mooncake: where each of --decode-servers-urls, in their order, takes embeddings "
        "(tcp://host:port, its ec_ip and ec_port)",
    )


def _add_engine_tls(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("TLS to engines (files are PEM, and read again when they change)")
    group.add_argument("--engine-tls", action="store_true", help="use watched pods by TLS whose port is named https")
    group.add_argument("--engine-ca", type=Path, metavar="FILE", help="CAs of the engines (default: the system's)")
    group.add_argument(
        "--engine-server-name",
        default="",
        metavar="NAME",
        help="name that every engine's certificate shows (default: the host of its address, for pods an IP)",
    )
    group.add_argument("--engine-cert", type=Path, metavar="FILE", help="certificate chain to show to engines")
    group.add_argument("--engine-key", type=Path, metavar="FILE", help="its key")


def _add_ports(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("process")
    every_address = "0.0.0.0"  # noqa: S104 - a pod's ports are reached from outside the pod
    group.add_argument("--host", default=every_address, help="address of both ports (default %(default)s)")
    group.add_argument("--port", type=int, default=8000, help="data port (default %(default)s)")
    group.add_argument("--admin-port", type=int, default=9090, help="health, metrics, topology (default %(default)s)")
    group.add_argument("--uds", type=Path, metavar="PATH", help="unix socket for the data port, in place of TCP")
    group.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate chain of the data port, in PEM")
    group.add_argument("--tls-key", type=Path, metavar="FILE", help="its key; both are read again when they change")
    group.add_argument(
        "--allowed-origins",
        type=typed(parse_origins),
        default=frozenset(),
        metavar="ORIGINS",
        help='comma-separated origins of web pages that may read answers, "*" for any (default: none)',
    )
    group.add_argument(
        "--open-route",
        action="append",
        choices=sorted(OPENABLE),
        default=[],
        dest="opened_routes",
        help="serve a route that is closed by default; may be given more than once",
    )
    group.add_argument("--suspended", action="store_true", help='answer every request with 503 "suspended"')
    add_duration(group, "--drain-delay", Drain().delay_seconds, "accept requests for this long after SIGTERM")
    add_duration(group, "--drain-timeout", Drain().timeout_seconds, "then let requests end for this long")
    group.add_argument(
        "--access-log",
        type=typed(parse_access_policy),
        default=AccessPolicy(),
        metavar="WHICH",
        help="lines of JSON on standard output: of None, of Errors (default: 5xx, and streams that broke), of All, or "
        "of Sampled:0.01 (one request in a hundred, and errors)",
    )
    group.add_argument(
        "--debug", "--log-requests", action="store_true", help="log more, errors of single requests among it"
    )


def _add_policy(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("policy")
    group.add_argument(
        "--encoder-failure-policy",
        type=EncoderFailurePolicy,
        choices=list(EncoderFailurePolicy),
        default=EncoderFailurePolicy.FALLBACK,
        help="after a retry: the prefill side encodes, or 503 (default %(default)s)",
    )
    switch = group.add_mutually_exclusive_group()
    switch.add_argument(
        "--rewrite",
        action="store_true",
        help="send the encoder's metadata instead of media to the prefill side; needs vLLM 0.30 and a connector that "
        "survives missing entries, which ECExampleConnector does not (default: media are sent too)",
    )
    switch.add_argument("--no-rewrite", action="store_false", dest="rewrite", help="the default, unlike vLLM's script")
    group.add_argument(
        "--connector",
        type=Connector,
        choices=list(Connector),
        help="how embeddings reach the prefill side, and so what requests may share (default Example, or Mooncake with "
        "--ec-consumer-zmq-addrs)",
    )
    group.add_argument(
        "--hint-seconds",
        type=float,
        default=0.0,
        metavar="S",
        help="no item is encoded again within S seconds, in which the store must keep it; for --connector Managed "
        "(default 0: all are)",
    )
    _add_affinity(group)


def _add_affinity(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--affinity",
        type=Affinity,
        choices=list(Affinity),
        default=Affinity.NONE,
        help="which requests should meet the same engine of the prefill side: those of a session (header x-session-id, "
        "or session_id), or those that begin alike (or have one prompt_cache_key); as far as none gets more than 1.25 "
        "times its share (default %(default)s: each goes where the least is in flight)",
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    group, limits = parser.add_argument_group("limits"), Limits()
    add_duration(group, "--request-timeout", limits.request_seconds, "longest request, from arrival to its last byte")
    add_duration(group, "--encode-timeout", limits.encode_seconds, "longest attempt of one encoder")
    add_duration(group, "--idle-timeout", limits.idle_seconds, "longest silence within a stream")
    group.add_argument(
        "--max-connections",
        type=typed(at_least(1)),
        metavar="N",
        help=f"clients that are connected, then 503 (default: a third of the descriptors, at most {MOST_CONNECTIONS})",
    )
    add_count(group, "--max-in-flight", limits.max_in_flight, "requests in flight, then 429")
    add_count(
        group,
        "--max-in-flight-per-engine",
        limits.max_in_flight_per_engine,
        "requests in flight at one engine of the prefill side, then others wait; 0 for any number",
        least=0,
    )
    add_count(group, "--queue", limits.queue, "requests that wait for an engine with room, then 429", least=0)
    add_duration(group, "--queue-timeout", limits.queue_seconds, "longest wait for an engine with room, then 503")
    add_count(
        group, "--max-fallback-encodes", limits.max_fallback_encodes, "fallback requests at a time, then 503", least=0
    )


def _add_media(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("media")
    group.add_argument(
        "--hash-algorithm",
        type=HashAlgorithm,
        choices=list(HashAlgorithm),
        default=HashAlgorithm.BLAKE3,
        help="hash of identifiers (default %(default)s)",
    )
    group.add_argument("--salt", default="", help="changes every identifier")
    group.add_argument(
        "--allowed-media-domains",
        type=parse_domains,
        default=frozenset(),
        metavar="HOSTS",
        help='hosts of media URLs; "*" for any public one (default: only data: URLs)',
    )
    group.add_argument(
        "--max-body-size",
        type=typed(parse_bytes),
        default=Limits().max_body_bytes,
        metavar="SIZE",
        help="largest body, then 413 (default 64Mi)",
    )


def _add_tenants(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("tenants")
    group.add_argument(
        "--api-keys",
        type=Path,
        metavar="DIR",
        help="a file for each tenant, named as it is, with an API key a line; read again when it changes (default: no "
        "request needs a key, and the client's Authorization goes to the engines)",
    )
    group.add_argument(
        "--tenant-isolation",
        type=TenantIsolation,
        choices=list(TenantIsolation),
        default=TenantIsolation.SHARED,
        help="whether tenants use each other's embeddings and prefix caches (default %(default)s)",
    )
    group.add_argument(
        "--ignore-priority",
        action="store_true",
        help="keep `priority` of bodies from engines, so that with --scheduling-policy priority no client goes before "
        "others (default: it travels on)",
    )
    most = Limits().max_in_flight_per_tenant
    add_count(
        group,
        "--max-in-flight-per-tenant",
        most,
        "requests of one tenant in flight, then 429; 0 for any number",
        least=0,
    )
