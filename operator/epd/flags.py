"""What the flags of our programs have in common: values that are checked as they are read, and say what is wrong.

Knows no program's flags.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

from epd.api.quantity import duration_seconds

T = TypeVar("T")


def typed(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Make argparse show the message of a ValueError instead of a word of its own."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def parse_duration(text: str) -> int:
    """Seconds of a duration such as `1h30m`. Raises ValueError; also for no time at all."""
    seconds = duration_seconds(text)
    if not seconds:
        raise ValueError(f"{text!r} is no time at all")
    return seconds


def add_duration(group: argparse._ArgumentGroup, flag: str, default: float, text: str) -> None:
    """Add a flag that takes a duration; `default` is in seconds."""
    group.add_argument(
        flag, type=typed(parse_duration), default=default, metavar="TIME", help=f"{text} (default {default:g}s)"
    )


def at_least(least: int) -> Callable[[str], int]:
    """Read whole numbers that are no less than `least`."""

    def parse(text: str) -> int:
        if (number := int(text)) < least:
            raise ValueError(f"must be at least {least}")
        return number

    return parse


def add_count(group: argparse._ArgumentGroup, flag: str, default: int, text: str, *, least: int = 1) -> None:
    """Add a flag that takes a whole number, no less than `least`."""
    group.add_argument(
        flag, type=typed(at_least(least)), default=default, metavar="N", help=f"{text} (default %(default)s)"
    )
