"""What happens to each version next: from names on disk, live versions, policy and the server clock. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from epd.collector.clock import Reading
from epd.collector.inputs import Liveness, Policy

MAX_LIVENESS_AGE: Final = 300.0
"""Seconds between asking and acting: an answer that waited longer says nothing of now."""


class Kind(Enum):
    """A step in a version's life."""

    NOTHING = auto()
    CONDEMN = auto()
    ABSOLVE = auto()
    """Take the mark of condemnation away."""
    REMOVE = auto()
    """Rename into the trash, if nothing speaks against it when looked at once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the names on disk say of a version that is ours. `condemned` is the server's time of its mark."""

    version: str
    present: bool
    condemned: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What to do with a version, and why. `grace` is what it must have been unused for, in seconds."""

    version: str
    kind: Kind
    why: str
    grace: float = 0.0


def decide(
    standings: Iterable[Standing], liveness: Liveness, policy: Policy, reading: Reading, monotonic: float
) -> tuple[Step, ...]:
    """Return one step per version; all are NOTHING if the answer about live versions may not be acted on."""
    why_not = refusal(liveness, reading, monotonic)
    if why_not:
        return tuple(Step(version=one.version, kind=Kind.NOTHING, why=why_not) for one in standings)
    return tuple(_decide(one, liveness, policy, reading) for one in standings)


def refusal(liveness: Liveness, reading: Reading, monotonic: float) -> str:
    """Return why no version may change its state; empty if it may."""
    if not liveness.valid:
        return f"it is not known which versions live: {liveness.message}"
    if monotonic - liveness.taken > MAX_LIVENESS_AGE:
        return f"the list of live versions is {monotonic - liveness.taken:.0f} s old"
    if not reading.reliable:
        return "the server's clock jumped"
    return ""


def _decide(one: Standing, liveness: Liveness, policy: Policy, reading: Reading) -> Step:
    if one.version in liveness.live:
        kind = Kind.NOTHING if one.condemned is None else Kind.ABSOLVE
        return Step(version=one.version, kind=kind, why="it lives")
    if not one.present:
        kind = Kind.NOTHING if one.condemned is None else Kind.ABSOLVE
        return Step(version=one.version, kind=kind, why="it is gone")
    if not policy.enabled:
        return Step(version=one.version, kind=Kind.NOTHING, why="collection is disabled")
    grace = 0.0 if one.version in liveness.expedited else policy.version_grace
    if one.condemned is None and grace > 0:
        return Step(version=one.version, kind=Kind.CONDEMN, why="nothing names it", grace=grace)
    since = max(0.0, reading.now - one.condemned) if one.condemned is not None else 0.0
    # Marks are dated by the server: after its clock jumped, they look older than they are.
    if since < grace or reading.steady < grace:
        return Step(version=one.version, kind=Kind.NOTHING, why=f"condemned {since:.0f} s ago", grace=grace)
    return Step(version=one.version, kind=Kind.REMOVE, why=f"nothing names it for {since:.0f} s", grace=grace)
