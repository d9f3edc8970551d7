"""The flags of vLLM's `disagg_epd_proxy.py` (0.33.0) that are not flags of this proxy's own.

Each is honoured, or taken at the value that says what this proxy does anyway and refused at any other with what to do
instead: a command line that starts here does what it says.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from epd.flags import add_count
from epd.proxy.settings import Probing

ENGINES_REGISTER_NOT = (
    "engines don't register here: give them by --encode-servers-urls and --decode-servers-urls, and start the proxy "
    "anew when they change, or have pods watched by --namespace and --epd"
)
TWO_TRIES = "a request is tried once more, on another engine if there is one; only 1 says so"
ONE_REPLICA = "engines of several data-parallel replicas are given as a server each, with one replica each: only 1"
PROBED_FOREVER = "engines are probed for as long as the proxy runs; only 0 says so"


def add_script_flags(parser: argparse.ArgumentParser) -> None:
    """Add them all."""
    probing = Probing()
    group = parser.add_argument_group("flags of vLLM's disagg_epd_proxy.py, for engines given by flag")
    _seconds(group, "--probe-interval", probing.interval_seconds, "an engine's /health is asked so often")
    _seconds(group, "--probe-timeout", probing.timeout_seconds, "longest answer to that")
    add_count(group, "--fail-threshold", probing.failures, "failures in a row that take an engine out")
    group.add_argument("--evicted-ttl", type=_only(float, 0, PROBED_FOREVER), default=0, metavar="S", help="only 0")
    group.add_argument("--decode-retries", type=_only(int, 1, TWO_TRIES), default=1, metavar="N", help="only 1")
    group.add_argument("--dynamic-registration", action="store_true", help="refused")
    group.add_argument("--ec-consumer-dp-size", type=_only(int, 1, ONE_REPLICA), default=1, metavar="N", help="only 1")


def refuse_script_flags(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Exit with status 2 where the flags ask for another mode of the script; before others are found missing."""
    if args.dynamic_registration:
        parser.error(f"argument --dynamic-registration: {ENGINES_REGISTER_NOT}")


def _only(parse: Callable[[str], Any], value: object, words: str) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        if (given := parse(text)) != value:
            raise argparse.ArgumentTypeError(words)
        return given

    return convert


def _seconds(group: argparse._ArgumentGroup, flag: str, default: float, text: str) -> None:
    def parse(given: str) -> float:
        seconds = float(given)
        if not 0 < seconds < float("inf"):
            raise argparse.ArgumentTypeError("must be more than 0 seconds")
        return seconds

    group.add_argument(flag, type=parse, default=default, metavar="S", help=f"{text} (default %(default)g s)")
