"""Entry point `epd-collector`: flags to parts, and their start and end. Decides nothing about the store."""

from __future__ import annotations

import argparse
import http
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from epd import __version__
from epd.api import names
from epd.collector import metrics, plan
from epd.collector.apiserver import ApiServer
from epd.collector.asking import Asker
from epd.collector.collection import DELETIONS_PER_SECOND, Collection
from epd.collector.endpoint import ApiError, Endpoint, by_address, in_cluster, own_namespace
from epd.collector.loop import INTERVAL_SECONDS, Loop
from epd.collector.report import View, report
from epd.collector.result import PassResult
from epd.collector.seen import Root
from epd.collector.server import Page, Server, text
from epd.collector.tally import Tally
from epd.flags import add_duration, typed

log = logging.getLogger(__name__)

_EXAMPLES: Final = """examples:
  in a cluster, as the operator starts it:
    epd-collector --claim qwen-encoder-cache

  what would be removed now, and why; changes nothing:
    kubectl exec deploy/qwen-encoder-cache-collector -- epd-collector plan --claim qwen-encoder-cache
    epd-collector plan --claim qwen-encoder-cache --output json

  outside of a cluster, on a machine that mounts the volume (`kubectl proxy` runs beside it):
    epd-collector plan --claim ec --namespace ai --root /mnt/ec --api-server http://127.0.0.1:8001
"""
_MOST_PASSES: Final = 10_000
"""Of one plan: slices of a dry run; ends one that always leaves work."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run until SIGTERM, or print a plan. Exit status 0; 1 where something failed; 2 where the flags make no sense."""
    arguments = build_parser().parse_args(argv)
    logging.basicConfig(
        level=logging.DEBUG if arguments.debug else logging.INFO if arguments.command == "run" else logging.ERROR,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        sys.exit((_plan if arguments.command == "plan" else _run)(arguments))
    except (ApiError, OSError) as error:
        print(f"epd-collector: {error}", file=sys.stderr)
        sys.exit(1)


def build_parser() -> argparse.ArgumentParser:
    """All flags, grouped as `--help` shows them."""
    parser = argparse.ArgumentParser(
        prog="epd-collector",
        description="Deletes what no longer serves from the encoder cache on one claim, by garbageCollection of the "
        "EPDDeployments that use it.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument(
        "command",
        nargs="?",
        choices=("run", "plan"),
        default="run",
        help="run: collect until SIGTERM (default); plan: list what would be removed, and why, and change nothing",
    )
    _add_place(parser.add_argument_group("what is collected"))
    _add_server(parser.add_argument_group("API server (default: that of the pod's cluster)"))
    _add_process(parser.add_argument_group("process"))
    return parser


def _add_place(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--claim", required=True, metavar="NAME", help="PersistentVolumeClaim that holds the cache")
    group.add_argument(
        "--sub-path",
        default="",
        metavar="PATH",
        help="directory in the claim, as users of it say; it is what --root is",
    )
    group.add_argument(
        "--root",
        default=names.ENCODER_CACHE_PATH,
        metavar="DIR",
        help="where the claim (its directory, with --sub-path) is mounted (default %(default)s)",
    )
    group.add_argument("--namespace", default="", metavar="NS", help="namespace of the claim (default: the pod's)")


def _add_server(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--api-server", default="", metavar="URL", help="for example http://127.0.0.1:8001")
    group.add_argument("--api-server-ca", default="", metavar="FILE", help="CA certificates of an https:// URL")
    group.add_argument("--token-file", default="", metavar="FILE", help="bearer token, read before each request")


def _add_process(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--host", default="", help="address of the port (default: every one)")
    group.add_argument("--port", type=int, default=names.COLLECTOR_PORT, help="default %(default)s")
    add_duration(group, "--interval", INTERVAL_SECONDS, "between two passes")
    group.add_argument(
        "--deletions-per-second",
        type=typed(_rate),
        default=DELETIONS_PER_SECOND,
        metavar="N",
        help="at most (default %(default)g)",
    )
    group.add_argument("--output", choices=("table", "json"), default="table", help="of plan (default %(default)s)")
    group.add_argument("--debug", action="store_true", help="log more")


def _run(arguments: argparse.Namespace) -> int:
    asker, root = _asker(arguments), _root(arguments)
    stopping: list[Callable[[], bool]] = []
    collection = _collection(arguments, asker, stopping=lambda: stopping[0]())
    loop = Loop(
        root=root,
        asks=asker,
        collects=collection,
        usage=partial(usage, arguments.root),
        interval=arguments.interval,
    )
    stopping.append(loop.stopping)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: loop.stop())
    server = Server(pages(loop), host=arguments.host, port=arguments.port)
    log.info("epd-collector %s for claim %s, port %d", __version__, arguments.claim, server.port)
    ended = loop.run()
    server.close()
    if not ended:
        log.warning("the pass under way did not end in time; the next start goes on with it")
    return 0


def _plan(arguments: argparse.Namespace) -> int:
    asker = _asker(arguments)
    collection = _collection(arguments, asker, stopping=lambda: False)
    brief = asker.begin()
    if brief.problem:
        raise ApiError(brief.problem)
    if brief.claim is None:
        raise ApiError(f"there is no PersistentVolumeClaim {arguments.claim} in the namespace")
    results: list[PassResult] = []
    while not results or (results[-1].more and len(results) < _MOST_PASSES):
        results.append(collection.run(brief.claim, plan.rehearsed(brief.in_force)))
    tally = Tally()
    for result in results:
        tally = tally.after(result, dry_run=True, now=0)
    view = View(root=_root(arguments), now=0, tally=tally, in_force=brief.in_force, liveness=asker.last)
    made = plan.plan(view, results)
    print(plan.as_json(made) if arguments.output == "json" else plan.as_table(made), end="")
    return 0


def pages(loop: Loop) -> dict[str, Page]:
    """Return what is served, by path."""

    def status() -> tuple[int, str, bytes]:
        return http.HTTPStatus.OK, "application/json", report(loop.view()).model_dump_json(by_alias=True).encode()

    def metrics_page() -> tuple[int, str, bytes]:
        page = metrics.render(loop.view(), running=loop.running, over_high=loop.over_high)
        return http.HTTPStatus.OK, metrics.CONTENT_TYPE, page

    def probe(why_not: Callable[[], str]) -> Page:
        def page() -> tuple[int, str, bytes]:
            words = why_not()
            return text(http.HTTPStatus.SERVICE_UNAVAILABLE if words else http.HTTPStatus.OK, words or "ok")

        return page

    return {
        "/status": status,
        "/metrics": metrics_page,
        "/healthz": probe(loop.unhealthy),
        "/readyz": probe(loop.unready),
    }


def usage(root: str) -> float:
    """Return the share of the volume that is in use, of bytes or inodes, whichever is more. Raises OSError."""
    volume = os.statvfs(root)
    return max(
        _share(volume.f_blocks - volume.f_bfree, volume.f_bavail),
        _share(volume.f_files - volume.f_ffree, volume.f_favail),
    )


def _share(used: int, available: int) -> float:
    """Of what a user without privileges can have, as df tells it."""
    return used / (used + available) if used + available > 0 else 0.0


def _asker(arguments: argparse.Namespace) -> Asker:
    namespace = arguments.namespace or own_namespace()
    return Asker(ApiServer(_endpoint(arguments)), namespace=namespace, root=_root(arguments))


def _endpoint(arguments: argparse.Namespace) -> Endpoint:
    if not arguments.api_server:
        return in_cluster(os.environ)
    return by_address(arguments.api_server, ca_file=arguments.api_server_ca, token_file=arguments.token_file)


def _root(arguments: argparse.Namespace) -> Root:
    return Root(claim=arguments.claim, sub_path=arguments.sub_path)


def _collection(arguments: argparse.Namespace, asker: Asker, *, stopping: Callable[[], bool]) -> Collection:
    return Collection(
        arguments.root,
        # a pod's host name is its own name, which no other pod has at the time
        name=socket.gethostname(),
        ask=asker,
        stopping=stopping,
        rate=arguments.deletions_per_second,
    )


def _rate(text: str) -> float:
    if not (rate := float(text)) > 0:
        raise ValueError("must be above 0")
    return rate


if __name__ == "__main__":
    main()
