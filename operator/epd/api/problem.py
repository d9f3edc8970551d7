"""One thing that is wrong with a spec. Data; finds none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from epd.api.names import Reason


@dataclass(frozen=True)
class Problem:
    """One thing in a spec that must be changed by its author.

    Attributes:
        reason: `OwnedField` or `InvalidSpec`.
        path: Where it is, such as `spec.engine.args[3]`.
        message: What is wrong with it and what to do.
    """

    reason: Reason
    path: str
    message: str


def owned(path: str, message: str) -> Problem:
    """Return that something at `path` is the operator's to set."""
    return Problem(reason=Reason.OWNED_FIELD, path=path, message=message)


def invalid(path: str, message: str) -> Problem:
    """Return that what is at `path` cannot be."""
    return Problem(reason=Reason.INVALID_SPEC, path=path, message=message)


def owned_name(path: str, name: str, table: Mapping[str, str]) -> Iterator[Problem]:
    """Find `name` in a table of the operator's own names and why."""
    if name in table:
        yield owned(path, f"{name} {table[name]}")
