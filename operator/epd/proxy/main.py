"""Entry point `epd-proxy`: flags to `Settings`, nothing more. `flags.py` says which there are."""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import replace

from epd.api.names import Role
from epd.proxy.connectors import SHARING, Connector
from epd.proxy.flags import add_flags
from epd.proxy.isolation import TenantIsolation
from epd.proxy.media import MediaPolicy
from epd.proxy.pods import Member
from epd.proxy.process import serve
from epd.proxy.script_flags import refuse_script_flags
from epd.proxy.settings import NO_SERVERS, Drain, EngineTls, Limits, Probing, Settings, parse_servers

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
    add_flags(parser)
    return parser


def read_settings(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Settings:
    """Settings of parsed flags; exits with status 2 where they contradict each other."""
    refuse_script_flags(parser, args)
    args.connector = args.connector or (Connector.MOONCAKE if args.ec_consumer_zmq_addrs else Connector.EXAMPLE)
    members = _static_members(parser, args)
    _refuse_contradictions(parser, args)
    return Settings(
        host=args.host,
        port=args.port,
        admin_port=args.admin_port,
        roles=frozenset(member.role for member in members) or args.roles,
        namespace=args.namespace,
        epd=args.epd,
        static_members=members,
        probing=Probing(
            interval_seconds=args.probe_interval, timeout_seconds=args.probe_timeout, failures=args.fail_threshold
        ),
        policy=args.encoder_failure_policy,
        limits=_limits(args),
        media=MediaPolicy(
            allowed_domains=args.allowed_media_domains,
            hash_algorithm=args.hash_algorithm,
            salt=args.salt,
            ignores_priority=args.ignore_priority,
        ),
        rewrite=args.rewrite,
        connector=args.connector,
        hint_seconds=args.hint_seconds,
        affinity=args.affinity,
        drain=Drain(delay_seconds=args.drain_delay, timeout_seconds=args.drain_timeout),
        suspended=args.suspended,
        debug=args.debug,
        uds=args.uds,
        tls_certificate=args.tls_cert,
        tls_key=args.tls_key,
        engine_tls=_engine_tls(parser, args, members),
        allowed_origins=args.allowed_origins,
        api_keys=args.api_keys,
        tenant_isolation=args.tenant_isolation,
        access_log=args.access_log,
        opened_routes=frozenset(args.opened_routes),
    )


def _refuse_contradictions(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    if args.hint_seconds and not SHARING[args.connector].hinted:
        parser.error(f"--hint-seconds: with --connector {args.connector} every item is encoded")
    if not 0 <= args.hint_seconds < math.inf:
        parser.error("--hint-seconds must not be negative")
    if (args.tls_cert is None) != (args.tls_key is None):
        parser.error("--tls-cert and --tls-key belong together")
    if args.api_keys is None and (args.tenant_isolation is TenantIsolation.SALTED or args.max_in_flight_per_tenant):
        parser.error("--tenant-isolation and --max-in-flight-per-tenant need --api-keys: without, nobody is a tenant")


def _limits(args: argparse.Namespace) -> Limits:
    return Limits(
        request_seconds=args.request_timeout,
        encode_seconds=args.encode_timeout,
        idle_seconds=args.idle_timeout,
        max_connections=args.max_connections,
        max_in_flight=args.max_in_flight,
        max_in_flight_per_engine=args.max_in_flight_per_engine,
        queue=args.queue,
        queue_seconds=args.queue_timeout,
        max_fallback_encodes=args.max_fallback_encodes,
        max_body_bytes=args.max_body_size,
        max_in_flight_per_tenant=args.max_in_flight_per_tenant,
    )


def _static_members(parser: argparse.ArgumentParser, args: argparse.Namespace) -> tuple[Member, ...]:
    """Engines given by flag; none where pods are watched. Exits with status 2 where it is neither, or both."""
    split = args.prefill_servers_urls.lower() not in NO_SERVERS
    static = bool(args.decode_servers_urls or args.encode_servers_urls or split)
    watched = bool(args.namespace or args.epd)
    if static == watched or (watched and not (args.namespace and args.epd)):
        parser.error("give either --namespace and --epd, or --decode-servers-urls (and --encode-servers-urls)")
    if static and not args.decode_servers_urls:
        parser.error("--decode-servers-urls is missing")
    try:
        encoders = parse_servers(args.encode_servers_urls, role=Role.ENCODE)
        answering = Role.DECODE if split else Role.PREFILL_DECODE
        prefill = parse_servers(args.prefill_servers_urls, role=Role.PREFILL) if split else ()
        decode = parse_servers(args.decode_servers_urls, role=answering)
        members = encoders + prefill + _with_push_addresses(parser, args, decode)
    except ValueError as error:
        parser.error(str(error))
    if len({member.name for member in members}) < len(members):
        parser.error("a server is given twice")
    return members


def _with_push_addresses(
    parser: argparse.ArgumentParser, args: argparse.Namespace, engines: Sequence[Member]
) -> tuple[Member, ...]:
    """Those engines, told where encoders reach them. Exits with status 2 where that isn't known, or of no use."""
    addresses: Sequence[str] = args.ec_consumer_zmq_addrs
    if SHARING[args.connector].pushed:
        if any(engine.role is Role.DECODE for engine in engines):
            parser.error(f"--connector {args.connector} needs engines that prefill and decode (no prefill servers)")
        if not engines or len(addresses) != len(engines):
            parser.error(f"--connector {args.connector} needs --ec-consumer-zmq-addrs, one for each decode server")
        return tuple(replace(engine, push_address=to) for engine, to in zip(engines, addresses, strict=True))
    if addresses:
        parser.error(f"--ec-consumer-zmq-addrs: with --connector {args.connector} nothing is pushed")
    return tuple(engines)


def _engine_tls(
    parser: argparse.ArgumentParser, args: argparse.Namespace, members: Sequence[Member]
) -> EngineTls | None:
    """How engines are reached by TLS, if any are. Exits with status 2 where flags would have no effect."""
    given = EngineTls(
        pods=args.engine_tls,
        ca=args.engine_ca,
        server_name=args.engine_server_name,
        certificate=args.engine_cert,
        key=args.engine_key,
    )
    if given.pods and members:
        parser.error("--engine-tls is for watched pods: give https:// URLs")
    if (given.certificate is None) != (given.key is None):
        parser.error("--engine-cert and --engine-key belong together")
    if given.pods or any(member.address.startswith("https:") for member in members):
        return given
    if given != EngineTls():
        parser.error("--engine-ca, --engine-server-name, --engine-cert: no engine is reached by TLS")
    return None


def _run(main: Coroutine[None, None, None]) -> None:
    """Run on uvloop where it exists, which is on CPython for Linux and macOS; elsewhere on asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


if __name__ == "__main__":
    main()
