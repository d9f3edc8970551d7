"""What a seed draws before anything happens in its history."""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass
from typing import Any

from histories.engines import IDENTIFIERS


def _policy(rng: random.Random) -> tuple[tuple[str, Any], ...]:
    high, low = rng.choice(((85, 70), (50, 30), (20, 5)))
    drawn: dict[str, Any] = {
        "minIdle": rng.choice(("4m", "15m")),
        "versionGracePeriod": rng.choice(("10m", "25m")),
        "highWatermarkPercent": high,
        "lowWatermarkPercent": low,
        "evictLiveEntries": rng.random() < 0.2,
    }
    if rng.random() < 0.3:
        drawn["entryTTL"] = "40m"
    if rng.random() < 0.3:
        drawn["maxSize"] = "64Ki"
    if rng.random() < 0.04:
        drawn["dryRun"] = True
    if rng.random() < 0.03:
        drawn["enabled"] = False
    return tuple(sorted(drawn.items()))


@dataclass(kw_only=True)
class Scenario:
    """What a seed draws before anything happens."""

    seconds: float
    policy: tuple[tuple[str, Any], ...]
    collectors: int
    intruder: bool
    identifiers: int
    engine_pace: tuple[float, float]
    pass_pace: tuple[float, float]
    blocks: int
    full: int
    foreign: bool
    hostile: bool
    damage: bool
    jumps: int
    weather: bool
    adopts: bool
    """The root was another claim's, and a person lets this one adopt it."""
    calm: bool
    """No pauses, errors or crashes: what is wrong here is wrong without bad luck."""

    @property
    def min_idle(self) -> float:
        return 240.0 if dict(self.policy)["minIdle"] == "4m" else 900.0


def draw(rng: random.Random) -> Scenario:
    hostile = rng.random() < 0.15
    return Scenario(
        seconds=rng.choice((600.0, 900.0, 1200.0, 2400.0, 3600.0)),
        policy=_policy(rng),
        collectors=rng.choice((1, 2, 2, 2, 3)),
        intruder=rng.random() < 0.1,
        identifiers=rng.choice((3, 6, len(IDENTIFIERS))),
        engine_pace=rng.choice(((5.0, 600.0), (0.05, 300.0), (60.0, 1200.0))),
        pass_pace=rng.choice(((120.0, 1500.0), (120.0, 1500.0), (20.0, 900.0), (300.0, 1500.0))),
        blocks=rng.choice((24, 60, 400)),
        full=rng.choice((errno.ENOSPC, errno.EDQUOT)),
        foreign=rng.random() < 0.5,
        hostile=hostile,
        damage=hostile or rng.random() < 0.1,
        jumps=rng.choice((0, 0, 1, 3)),
        weather=rng.random() < 0.5,
        adopts=rng.random() < 0.08,
        calm=rng.random() < 0.15,
    )
