"""How a reconcile ended well. Data only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """`requeue_after` in seconds; None: a watch event or the resync will do. `also` are other keys to reconcile now."""

    requeue_after: float | None = None
    stalled: bool = False
    also: tuple[str, ...] = ()
