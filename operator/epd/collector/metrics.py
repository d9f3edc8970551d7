"""`epd_gc_*` in Prometheus's text format, made from a `View` whenever it is asked for. Pure; counts nothing itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from epd.collector.report import View
from epd.collector.result import Cause, PassResult, Spared, State

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_LABELS: Final = ("claim", "sub_path")
_Samples = Iterable[tuple[tuple[str, ...], float]]


def render(view: View, *, running: float | None, over_high: float) -> bytes:
    """Return the page of metrics.

    Args:
        view: What is known.
        running: Seconds since the pass under way began; None between passes.
        over_high: Seconds that usage was above the high watermark since the start.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(view, running, over_high))
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, view: View, running: float | None, over_high: float) -> None:
        self._view = view
        self._running = running
        self._over_high = over_high
        self._values = (view.root.claim, view.root.sub_path)

    def collect(self) -> Iterator[Metric]:
        yield from self._process()
        yield from self._counters()
        if self._view.tally.passes and self._view.tally.latest:
            yield from self._store(self._view.tally.latest)

    def _process(self) -> Iterator[Metric]:
        """What is known without any pass."""
        view, policy = self._view, self._view.in_force.policy
        yield self._gauge("collection_enabled", "Whether anything may be deleted.", policy.enabled)
        yield self._gauge("dry_run", "Whether deletions are only counted.", policy.dry_run)
        yield self._gauge("high_watermark_ratio", "Share above which is evicted.", policy.high_percent / 100)
        yield self._gauge("low_watermark_ratio", "Share down to which is evicted.", policy.low_percent / 100)
        valid = view.liveness is not None and view.liveness.valid
        yield self._gauge("roots_valid", "Whether it is known which versions live.", valid)
        if view.last_valid is not None:
            yield self._gauge(
                "roots_age_seconds", "Since the last answer that may be acted on.", view.now - view.last_valid
            )
        yield self._gauge("pass_running_seconds", "Since the pass under way began; 0 between.", self._running or 0)
        silent = 0.0 if view.silent is None else view.now - view.silent
        yield self._gauge("volume_silent_seconds", "Since the volume last answered; 0 while it does.", silent)

    def _counters(self) -> Iterator[Metric]:
        tally = self._view.tally
        yield self._counter("passes", "Finished passes.", [((), tally.passes)])
        yield self._counter("pass_failures", "Passes that broke off.", [((), tally.failures)])
        yield self._counter("entries_scanned", "Entries looked at by scans.", [((), tally.scanned_entries)])
        removed = [((cause.value,), float(tally.removed.get(cause, 0))) for cause in Cause]
        yield self._counter("deleted", "Deleted files, by reason.", removed, "reason")
        freed = [((cause.value,), float(tally.freed.get(cause, 0))) for cause in Cause]
        yield self._counter("deleted_bytes", "Deleted bytes, by reason.", freed, "reason")
        spared = [((reason.value,), float(tally.spared.get(reason, 0))) for reason in Spared]
        yield self._counter("spared", "What was due and kept, by reason.", spared, "reason")
        errors = [(key, float(count)) for key, count in sorted(tally.errors.items())]
        yield self._counter("errors", "Calls of the file system that failed.", errors, "op", "errno")
        yield self._counter("time_over_high_seconds", "Time above the high watermark.", [((), self._over_high)])

    def _store(self, latest: PassResult) -> Iterator[Metric]:
        """What lies on the claim; before a first pass nothing is said, since 0 would be wrong."""
        volume = latest.volume
        yield self._gauge("root_owned", "Whether this claim owns the root.", latest.owned)
        yield self._gauge("bytes_used", "Bytes of our versions and of the trash.", latest.used_bytes)
        yield self._gauge("entries", "Entries of our versions.", latest.entries)
        yield self._gauge("foreign_bytes", "Bytes in the root that are not ours.", latest.foreign_bytes)
        yield self._gauge("foreign_entries", "Names in the root that are not ours.", latest.foreign_entries)
        yield self._gauge("trash_bytes", "Bytes renamed away and not yet deleted.", latest.trash_bytes)
        yield self._gauge("oldest_trash_seconds", "Age of the oldest trash; 0 without.", latest.oldest_trash or 0)
        yield self._gauge("pins", "Hard links held by readers.", latest.pins)
        yield self._gauge("scan_seconds", "Length of the last scan.", latest.scan_seconds)
        yield self._gauge("clock_skew_seconds", "Server's clock beyond the monotonic one.", latest.clock_skew)
        yield self._gauge("over_high", "Whether usage is above the high watermark.", latest.over_watermark)
        yield self._gauge("volume_capacity_bytes", "Size of the volume.", volume.capacity_bytes)
        yield self._gauge("volume_bytes_used", "Used bytes of the volume, by anybody.", volume.used_bytes)
        yield self._gauge("volume_capacity_inodes", "Inodes of the volume; 0: not counted.", volume.capacity_inodes)
        yield self._gauge("inodes_used", "Used inodes of the volume, by anybody.", volume.used_inodes)
        states = [((state.value,), float(sum(v.state is state for v in latest.versions))) for state in State]
        yield self._family(GaugeMetricFamily, "versions", "Versions, by state.", states, "state")
        if self._view.in_force.policy.dry_run:
            victims = [((cause.value,), float(latest.removed.get(cause, 0))) for cause in Cause]
            yield self._family(
                GaugeMetricFamily, "dry_run_victims", "What the last pass would have deleted.", victims, "reason"
            )

    def _gauge(self, name: str, says: str, value: float) -> Metric:
        return self._family(GaugeMetricFamily, name, says, [((), float(value))])

    def _counter(self, name: str, says: str, samples: _Samples, *labels: str) -> Metric:
        return self._family(CounterMetricFamily, name, says, samples, *labels)

    def _family(
        self,
        kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
        name: str,
        says: str,
        samples: _Samples,
        *labels: str,
    ) -> Metric:
        family = kind(f"epd_gc_{name}", says, labels=(*_LABELS, *labels))
        for values, number in samples:
            family.add_metric((*self._values, *values), number)
        return family
