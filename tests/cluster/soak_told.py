"""What a soak is judged by: what was not as it must be, the curves, and the figures. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.curve import Mark, Panel, round_up, svg
from cluster.soak_load import KINDS, Answers
from cluster.soak_watch import Look, Seen
from epd.collector.result import Cause

REACTION_SECONDS = 10.0
"""From crossing high to the first byte freed, as the collector promises: half by its poll, half by its pass."""


@dataclass(frozen=True, kw_only=True)
class Soaked:
    """What happened."""

    seconds: float
    """Of load."""
    high: int
    low: int
    """Watermarks in percent."""
    volume_bytes: int
    answers: Answers
    seen: Seen
    written: int
    """Entries by the filler."""
    rate_bytes: float
    """A second, by the filler at its fastest."""
    unwritten: Counter[str]
    versions: Sequence[str]
    """That were live, in order."""
    changes: Sequence[float]
    """Seconds at which all but the first became live."""
    left: Sequence[str]
    """Old ones that have a directory at the end."""
    untouched: bool
    """Whether what is not the cache's is as it was."""

    @property
    def looks(self) -> list[Look]:
        """Looks under load."""
        return [look for look in self.seen.looks if look.at <= self.seconds]

    @property
    def peak(self) -> float:
        """Most of the volume that was used, in percent."""
        return max(look.share for look in self.looks) * 100

    @property
    def bound(self) -> float:
        """Percent: high, and what is written until the collector must have begun to free."""
        return self.high + 100 * REACTION_SECONDS * self.rate_bytes / self.volume_bytes

    @property
    def restarts(self) -> dict[str, int]:
        """Containers that restarted."""
        return {name: count for name, count in self.seen.restarts.items() if count}


def failures(soaked: Soaked) -> list[str]:
    """What was not as it must be."""
    answers, seen, connector = soaked.answers, soaked.seen, soaked.seen.connector()
    checks: Mapping[str, object] = {
        f"{len(answers.wrong)} wrong answers: {answers.wrong[:5]}": answers.wrong,
        f"{len(answers.failed)} failed requests: {answers.failed[:5]}": answers.failed,
        f"a kind of request was never answered: {answers.right}": set(KINDS) - set(answers.right),
        f"restarted: {soaked.restarts}": soaked.restarts,
        f"usage reached {soaked.peak:.1f} %, above {soaked.bound:.1f} %": soaked.peak > soaked.bound,
        f"usage never reached {soaked.high} %": soaked.peak <= soaked.high,
        f"nothing was evicted for a watermark: {seen.deleted}": not seen.deleted.get(Cause.WATERMARK),
        f"the filler failed: {soaked.unwritten}": soaked.unwritten["No space left on device"],
        f"versions left: {soaked.left}": soaked.left,
        "the version never changed": len(soaked.versions) < 2,
        "what is not the cache's was touched": not soaked.untouched,
        f"no picture came from the store: {connector}": not connector["hits"],
        f"the collector was not heard: {seen.blind}": len(soaked.looks) < soaked.seconds / 10,
    }
    return [says for says, is_so in checks.items() if is_so]


def picture(soaked: Soaked) -> str:
    """The curves."""
    looks = soaked.looks
    deleted = [look.deleted / 1000 for look in looks]
    limits = [(soaked.bound, "bound"), (soaked.high, "high watermark"), (soaked.low, "low watermark")]
    used = [look.share * 100 for look in looks]
    panels = [
        Panel(title="Share of the volume in use, %", values=used, top=100, limits=limits),
        Panel(title="Entries deleted by the collector, thousands", values=deleted, top=round_up(max(deleted))),
    ]
    marks = [Mark(at, f"version {number}") for number, at in enumerate(soaked.changes, start=2)]
    return svg([look.at for look in looks], panels, marks, describes=line(soaked))


def line(soaked: Soaked) -> str:
    """All in one line."""
    answers, deleted = soaked.answers, sum(soaked.seen.deleted.values())
    return (
        f"{soaked.seconds / 60:.0f} minutes, {len(answers.seconds)} requests with {answers.pictures} pictures, "
        f"{len(answers.wrong)} wrong and {len(answers.failed)} failed; {deleted:,.0f} entries deleted, "
        f"{soaked.written:,} written by hand, {len(soaked.versions)} versions; usage at most {soaked.peak:.1f} % "
        f"(high {soaked.high} %, bound {soaked.bound:.1f} %); {sum(soaked.restarts.values())} restarts"
    )


def summary(soaked: Soaked) -> str:
    """Figures for people; the last line is for docs."""
    answers, seen = soaked.answers, soaked.seen
    rows: dict[str, object] = {
        "right answers by kind": _counts(answers.right),
        "right pictures by colour": _counts(answers.colours),
        "by x-epd-encode": _counts(answers.encode),
        "seconds an answer, median and p99": _quantiles(answers.seconds),
        "connector, all engines": _counts(_told(seen.connector())),
        "deleted by cause": _counts(seen.deleted),
        "freed, MiB": f"{seen.freed_bytes / 2**20:.0f}",
        "passes, longest in s": f"{seen.passes:.0f}, {seen.longest_pass:.1f}",
        "writes by hand a second": f"{soaked.written / soaked.seconds:.0f}, failed: {_counts(soaked.unwritten)}",
        "usage in %, least, median, most": _shares(soaked.looks),
        "entries, most": max(look.entries for look in soaked.looks),
        "EncoderCacheHealthy, times seen": _counts(seen.healthy),
        "collector's troubles, times seen": _counts(seen.troubles),
        "containers seen, restarts": f"{len(seen.restarts)}, {sum(seen.restarts.values())}",
        "looks, failed": f"{len(seen.looks)}, {_counts(seen.blind)}",
        "version changed at s": ", ".join(f"{at:.0f}" for at in soaked.changes),
        "old one's directory gone after s": ", ".join(f"{after:.0f}" for after in _gone(soaked)),
    }
    return "\n".join([*(f"{name:36}{value}" for name, value in rows.items()), "", line(soaked)])


def _gone(soaked: Soaked) -> list[float]:
    """Seconds from each change to the last look that found the version before it."""
    pairs = zip(soaked.versions, soaked.changes, strict=False)
    return [max(look.at for look in soaked.seen.looks if version in look.versions) - at for version, at in pairs]


def _counts(found: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {count:.10g}" for name, count in sorted(found.items()) if count) or "none"


def _told(connector: Mapping[str, float]) -> Mapping[str, float]:
    kept = ("hits", "misses", "loads", "saves", "republished", "local_encodes", "budget_full", "probe_timeouts")
    prefixes = ("rejects/", "save_failures/", "unavailable")
    return {
        name: count
        for name, count in connector.items()
        if name in kept or (name.startswith(prefixes) and not name.endswith("_created"))
    }


def _quantiles(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f}, {statistics.quantiles(seconds, n=100)[98]:.2f}"


def _shares(looks: Sequence[Look]) -> str:
    shares = [look.share * 100 for look in looks]
    return f"{min(shares):.1f}, {statistics.median(shares):.1f}, {max(shares):.1f}"
