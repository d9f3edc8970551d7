"""What all passes since the start came to, added up pass by pass. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from epd.collector.result import Cause, PassResult, Spared

K = TypeVar("K")


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What one round removed: a pass, and those that followed at once since it had left work."""

    finished: float = 0.0
    """Seconds since the epoch."""
    entries: int = 0
    versions: int = 0
    freed_bytes: int = 0

    def __bool__(self) -> bool:
        return bool(self.entries or self.versions or self.freed_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Sums since the start. `latest` is the last pass, None before the first.

    Attributes:
        passes: Finished ones, counted from the first that knows what lies on the claim.
        failures: Passes that ended with an error of the program.
        round: Of the passes that are following each other now.
        collected: The last round that removed something.
    """

    passes: int = 0
    failures: int = 0
    latest: PassResult | None = None
    freed_bytes: int = 0
    scanned_entries: int = 0
    removed: Mapping[Cause, int] = field(default_factory=dict)
    freed: Mapping[Cause, int] = field(default_factory=dict)
    spared: Mapping[Spared, int] = field(default_factory=dict)
    errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    round: Removed = Removed()
    collected: Removed | None = None

    def failed(self) -> Tally:
        """Count a pass that broke off."""
        return replace(self, failures=self.failures + 1)

    def after(self, result: PassResult, *, dry_run: bool, now: float) -> Tally:
        """Count a pass. What a dry run would have removed is not removed.

        Args:
            result: What the pass came to.
            dry_run: Whether it was one.
            now: Seconds since the epoch, for a pass that could not tell the server's time.
        """
        known = not result.blind and (self.passes > 0 or result.rescanned or not result.more)
        latest = result
        if result.blind:  # what lies on the root is as it was before
            latest = replace(self.latest or result, more=False, errors=result.errors, troubles=result.troubles)
        counted = replace(
            self,
            passes=self.passes + known,
            latest=latest,
            scanned_entries=self.scanned_entries + result.scanned_entries,
            spared=_sum(self.spared, result.spared),
            errors=_sum(self.errors, result.errors),
        )
        if dry_run:
            return replace(counted, round=Removed())
        done = Removed(
            finished=now if result.finished is None else result.finished,
            entries=self.round.entries + result.removed_entries,
            versions=self.round.versions + result.removed_versions,
            freed_bytes=self.round.freed_bytes + result.freed_bytes,
        )
        changed = bool(result.removed_entries or result.removed_versions or result.freed_bytes)
        return replace(
            counted,
            freed_bytes=self.freed_bytes + result.freed_bytes,
            removed=_sum(self.removed, result.removed),
            freed=_sum(self.freed, result.freed),
            round=done if result.more else Removed(),
            collected=done if changed else self.collected,
        )


def _sum(first: Mapping[K, int], second: Mapping[K, int]) -> Mapping[K, int]:
    return {**first, **{key: first.get(key, 0) + count for key, count in second.items()}}
