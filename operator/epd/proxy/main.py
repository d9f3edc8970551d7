"""Entry point `epd-proxy`: flags to `Settings`, nothing more."""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TypeVar

from epd.api.names import Role
from epd.proxy.connectors import SHARING, Connector
from epd.proxy.identifiers import HashAlgorithm
from epd.proxy.media import MediaPolicy
from epd.proxy.process import serve
from epd.proxy.routes import OPENABLE
from epd.proxy.settings import (
    NO_SERVERS,
    Drain,
    EncoderFailurePolicy,
    Limits,
    Settings,
    parse_bytes,
    parse_domains,
    parse_duration,
    parse_origins,
    parse_roles,
    parse_servers,
)

T = TypeVar("T")

EXAMPLES = """examples:
  in a cluster, as the operator starts it (a kubeconfig is used outside of pods):
    epd-proxy --namespace ai --epd qwen --roles encode,prefill-decode

  without Kubernetes, with the flags of vLLM's disagg_epd_proxy.py:
    epd-proxy --port 8000 --encode-servers-urls http://127.0.0.1:8100,http://127.0.0.1:8101 \\
              --prefill-servers-urls disable --decode-servers-urls http://127.0.0.1:8200
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the proxy until SIGTERM; exit status 0, or 2 where the flags make no sense."""
    parser = build_parser()
    settings = read_settings(parser, parser.parse_args(argv))
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    if settings.debug:
        # ours alone: libraries would log bodies and tokens
        logging.getLogger("epd").setLevel(logging.DEBUG)
    _run(serve(settings))


def build_parser() -> argparse.ArgumentParser:
    """All flags, grouped as `--help` shows them."""
    parser = argparse.ArgumentParser(
        prog="epd-proxy",
        description="One OpenAI-compatible endpoint in front of encoders and the prefill side of one EPDDeployment.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_members(parser)
    _add_ports(parser)
    _add_limits(parser)
    _add_media(parser)
    return parser


def _add_members(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("engines found by watching pods")
    group.add_argument("--namespace", default="", metavar="NS", help="namespace of the pods")
    group.add_argument("--epd", default="", metavar="NAME", help="name of the EPDDeployment (label epd.dev/name)")
    group.add_argument(
        "--roles",
        type=_typed(parse_roles),
        default=frozenset({Role.ENCODE, Role.PREFILL_DECODE}),
        metavar="ROLES",
        help="roles of the topology: encode,prefill-decode (default), prefill-decode (aggregated), or either with "
        "prefill,decode in place of prefill-decode",
    )
    group = parser.add_argument_group("engines given by flag")
    servers = "comma-separated base URLs"
    group.add_argument("--encode-servers-urls", default="", metavar="URLS", help=f"encoders, {servers}")
    group.add_argument(
        "--prefill-servers-urls",
        default="",
        metavar="URLS",
        help='prefill engines, or "disable", "none" or empty where those that decode do both',
    )
    group.add_argument("--decode-servers-urls", default="", metavar="URLS", help=f"engines that answer, {servers}")
    # of vLLM's script; it may only say what this proxy does anyway
    group.add_argument("--decode-retries", type=int, choices=(1,), default=1, help="as always: one")


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
        type=_typed(parse_origins),
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
    _duration(group, "--drain-delay", Drain().delay_seconds, "accept requests for this long after SIGTERM")
    _duration(group, "--drain-timeout", Drain().timeout_seconds, "then let requests end for this long")
    group.add_argument(
        "--debug", "--log-requests", action="store_true", help="log more, errors of single requests among it"
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    group, limits = parser.add_argument_group("policy and limits"), Limits()
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
        default=Connector.EXAMPLE,
        help="how embeddings reach the prefill side, and so what requests may share (default %(default)s)",
    )
    group.add_argument(
        "--hint-seconds",
        type=float,
        default=0.0,
        metavar="S",
        help="no item is encoded again within S seconds, in which the store must keep it; for --connector Managed "
        "(default 0: all are)",
    )
    _duration(group, "--request-timeout", limits.request_seconds, "longest request, from arrival to its last byte")
    _duration(group, "--encode-timeout", limits.encode_seconds, "longest attempt of one encoder")
    _duration(group, "--idle-timeout", limits.idle_seconds, "longest silence within a stream")
    _count(group, "--max-in-flight", limits.max_in_flight, "requests in flight, then 429")
    _count(
        group,
        "--max-in-flight-per-engine",
        limits.max_in_flight_per_engine,
        "requests in flight at one engine of the prefill side, then others wait; 0 for any number",
        least=0,
    )
    _count(group, "--queue", limits.queue, "requests that wait for an engine with room, then 429", least=0)
    _duration(group, "--queue-timeout", limits.queue_seconds, "longest wait for an engine with room, then 503")
    _count(
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
        type=_typed(parse_bytes),
        default=Limits().max_body_bytes,
        metavar="SIZE",
        help="largest body, then 413 (default 64Mi)",
    )


def read_settings(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Settings:
    """Settings of parsed flags; exits with status 2 where they contradict each other."""
    split = args.prefill_servers_urls not in NO_SERVERS
    static = bool(args.decode_servers_urls or args.encode_servers_urls or split)
    watched = bool(args.namespace or args.epd)
    if static == watched or (watched and not (args.namespace and args.epd)):
        parser.error("give either --namespace and --epd, or --decode-servers-urls (and --encode-servers-urls)")
    if static and not args.decode_servers_urls:
        parser.error("--decode-servers-urls is missing")
    if args.hint_seconds and not SHARING[args.connector].hinted:
        parser.error(f"--hint-seconds: with --connector {args.connector} every item is encoded")
    if not 0 <= args.hint_seconds < math.inf:
        parser.error("--hint-seconds must not be negative")
    try:
        encoders = parse_servers(args.encode_servers_urls, role=Role.ENCODE)
        answering = Role.DECODE if split else Role.PREFILL_DECODE
        prefill = parse_servers(args.prefill_servers_urls, role=Role.PREFILL) if split else ()
        members = encoders + prefill + parse_servers(args.decode_servers_urls, role=answering)
    except ValueError as error:
        parser.error(str(error))
    if len({member.name for member in members}) < len(members):
        parser.error("a server is given twice")
    if (args.tls_cert is None) != (args.tls_key is None):
        parser.error("--tls-cert and --tls-key belong together")
    return Settings(
        host=args.host,
        port=args.port,
        admin_port=args.admin_port,
        roles=frozenset(member.role for member in members) if static else args.roles,
        namespace=args.namespace,
        epd=args.epd,
        static_members=members,
        policy=args.encoder_failure_policy,
        limits=Limits(
            request_seconds=args.request_timeout,
            encode_seconds=args.encode_timeout,
            idle_seconds=args.idle_timeout,
            max_in_flight=args.max_in_flight,
            max_in_flight_per_engine=args.max_in_flight_per_engine,
            queue=args.queue,
            queue_seconds=args.queue_timeout,
            max_fallback_encodes=args.max_fallback_encodes,
            max_body_bytes=args.max_body_size,
        ),
        media=MediaPolicy(
            allowed_domains=args.allowed_media_domains, hash_algorithm=args.hash_algorithm, salt=args.salt
        ),
        rewrite=args.rewrite,
        connector=args.connector,
        hint_seconds=args.hint_seconds,
        drain=Drain(delay_seconds=args.drain_delay, timeout_seconds=args.drain_timeout),
        suspended=args.suspended,
        debug=args.debug,
        uds=args.uds,
        tls_certificate=args.tls_cert,
        tls_key=args.tls_key,
        allowed_origins=args.allowed_origins,
        opened_routes=frozenset(args.opened_routes),
    )


def _run(main: Coroutine[None, None, None]) -> None:
    """Run on uvloop where it exists, which is on CPython for Linux and macOS; elsewhere on asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


def _typed(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Make argparse show the message of a ValueError instead of a word of its own."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def _duration(group: argparse._ArgumentGroup, flag: str, default: float, text: str) -> None:
    group.add_argument(
        flag, type=_typed(parse_duration), default=default, metavar="TIME", help=f"{text} (default {default:g}s)"
    )


def _count(group: argparse._ArgumentGroup, flag: str, default: int, text: str, *, least: int = 1) -> None:
    def parse(value: str) -> int:
        if (number := int(value)) < least:
            raise ValueError(f"must be at least {least}")
        return number

    group.add_argument(flag, type=_typed(parse), default=default, metavar="N", help=f"{text} (default %(default)s)")


if __name__ == "__main__":
    main()
