"""Counters and histograms that cost an addition to use, and are put into Prometheus's form when they are scraped.

Those of prometheus_client take a lock and a look-up of labels each time, which is more than choosing an engine takes.
All of a proxy's work runs in one thread, so neither is needed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry


class Count:
    """One counter."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0


class _Histogram:
    """One histogram: how many values each bucket has got, the last one those above all bounds; and their sum."""

    __slots__ = ("counts", "sum")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * buckets
        self.sum = 0.0


class Counts(Collector):
    """Counters of one name by the values of `labels`, which come after those of `base`."""

    def __init__(
        self, registry: CollectorRegistry, name: str, text: str, base: Mapping[str, str], labels: Sequence[str] = ()
    ) -> None:
        self._name = name
        self._text = text
        self._base = base
        self._labels = labels
        self.counts: dict[tuple[str, ...], Count] = {}
        if not labels:
            # shown before it first counts, since its labels are known
            self.counts[()] = Count()
        registry.register(self)

    def add(self, *labels: str, amount: float = 1) -> None:
        """Count `amount` more."""
        count = self.counts.get(labels)
        if count is None:
            count = self.counts[labels] = Count()
        count.value += amount

    def collect(self) -> Iterable[CounterMetricFamily]:
        """Show all."""
        family = CounterMetricFamily(self._name, self._text, labels=[*self._base, *self._labels])
        for labels, count in self.counts.items():
            family.add_metric([*self._base.values(), *labels], count.value)
        yield family


class Spread(Collector):
    """Histograms of one name, with buckets up to each of `bounds`, by the values of `labels`."""

    def __init__(
        self,
        registry: CollectorRegistry,
        name: str,
        text: str,
        base: Mapping[str, str],
        bounds: Sequence[float],
        labels: Sequence[str] = (),
    ) -> None:
        self._name = name
        self._text = text
        self._base = base
        self._bounds = bounds
        self._labels = labels
        self._buckets = len(bounds) + 1
        self._histograms: dict[tuple[str, ...], _Histogram] = {}
        if not labels:
            # shown before its first value, since its labels are known
            self._histograms[()] = _Histogram(self._buckets)
        registry.register(self)

    def observe(self, value: float, *labels: str) -> None:
        """Take one value."""
        histogram = self._histograms.get(labels)
        if histogram is None:
            histogram = self._histograms[labels] = _Histogram(self._buckets)
        histogram.counts[bisect_left(self._bounds, value)] += 1
        histogram.sum += value

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """Show all."""
        bounds = [*map(str, map(float, self._bounds)), "+Inf"]
        family = HistogramMetricFamily(self._name, self._text, labels=[*self._base, *self._labels])
        for labels, histogram in self._histograms.items():
            buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
            family.add_metric([*self._base.values(), *labels], buckets, histogram.sum)
        yield family
