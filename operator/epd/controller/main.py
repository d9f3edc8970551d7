"""Entry point `epd-operator`: flags to `Options`, logging, exit status; nothing more."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from epd import __version__
from epd.api.quantity import duration_seconds
from epd.controller import process

EXAMPLES: Final = """examples:
  all namespaces, in the cluster, as the chart starts it:
    epd-operator --operator-image registry.example.com/epd-operator:1.2.3

  two namespaces only, outside the cluster (KUBECONFIG, or ~/.kube/config):
    epd-operator --namespace ai --namespace ai-dev --operator-image epd-operator:dev

exit status: 0 stopped by a signal, 1 a watch or the connection failed for good, 2 the flags make no sense
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the operator until SIGTERM."""
    parser = build_parser()
    options, level, log_format = read_options(parser, argv)
    _log(level, log_format)
    try:
        asyncio.run(process.run(options))
    except Exception:
        logging.getLogger(__name__).exception("the operator ends")
        sys.exit(1)


def build_parser() -> argparse.ArgumentParser:
    """All flags, as `--help` shows them."""
    parser = argparse.ArgumentParser(
        prog="epd-operator",
        description="Runs multimodal models on vLLM with encoder, prefill and decode as separate workloads.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--version", action="version", version=f"epd-operator {__version__}")
    add("--namespace", action="append", default=[], metavar="NAME", help="serve this namespace only; repeatable")
    add(
        "--operator-image",
        default=os.environ.get("EPD_OPERATOR_IMAGE"),
        metavar="IMAGE",
        help="image of proxies and checks: the operator's own (default: $EPD_OPERATOR_IMAGE)",
    )
    add("--operator-image-pull-policy", choices=("Always", "IfNotPresent", "Never"), help="when it is pulled")
    add("--metrics-port", type=_port, default=8080, metavar="PORT", help="port of /metrics (default: 8080)")
    add("--health-port", type=_port, default=8081, metavar="PORT", help="port of /healthz and /readyz (default: 8081)")
    add(
        "--resync-interval",
        type=_seconds,
        default="5m",
        metavar="DURATION",
        help="how often every object is looked at without an event, give or take a fifth (default: 5m)",
    )
    add(
        "--watch-lag-limit",
        type=_seconds,
        default="60s",
        metavar="DURATION",
        help="how long a watch may owe a change that a list has shown before /healthz fails (default: 60s)",
    )
    add("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    add("--log-format", choices=("text", "json"), default="text")
    return parser


def read_options(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> tuple[process.Options, str, str]:
    """Options, log level and log format; exits with 2 and a message where the flags make no sense."""
    args = parser.parse_args(argv)
    if not args.operator_image:
        parser.error("--operator-image (or EPD_OPERATOR_IMAGE) is required: proxies run in the operator's own image")
    options = process.Options(
        namespaces=tuple(dict.fromkeys(args.namespace)),
        operator_image=args.operator_image,
        operator_image_pull_policy=args.operator_image_pull_policy,
        metrics_port=args.metrics_port,
        health_port=args.health_port,
        resync=args.resync_interval,
        watch_lag=args.watch_lag_limit,
    )
    return options, args.log_level, args.log_format


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{port} is no port: 1 to 65535, or 0 for any free one")
    return port


def _seconds(text: str) -> float:
    try:
        seconds = duration_seconds(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from e
    if seconds < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is too short: 1s or more")
    return float(seconds)


class JSONFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """`time` (RFC 3339, UTC), `level`, `logger`, `message`, and `error` with a traceback if there is one."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _log(level: str, log_format: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JSONFormatter() if log_format == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if level != "debug":
        # kopf tells of every event it hands on.
        logging.getLogger("kopf").setLevel(logging.WARNING)
