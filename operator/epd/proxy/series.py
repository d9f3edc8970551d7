"""Counters and histograms that cost an addition to use, and are put into Prometheus's form when they are scraped.

Those of prometheus_client take a lock and a look-up of labels each time, which is more than choosing an engine takes.
All of a proxy's work runs in one thread, so neither is needed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry


class Counts(Collector):
    """Counters of one name by the values of `labels`, which come after those of `base`."""

    def __init__(
        self, registry: CollectorRegistry, name: str, text: str, base: Mapping[str, str], labels: Sequence[str] = ()
    ) -> None:
        self._name = name
        self._text = text
        self._base = base
        self._labels = labels
        self.values: defaultdict[tuple[str, ...], float] = defaultdict(float)
        if not labels:
            # shown before it first counts, since its labels are known
            self.values[()] = 0.0
        registry.register(self)

    def add(self, *labels: str, amount: float = 1) -> None:
        """Count `amount` more."""
        self.values[labels] += amount

    def collect(self) -> Iterable[CounterMetricFamily]:
        """Show all."""
        family = CounterMetricFamily(self._name, self._text, labels=[*self._base, *self._labels])
        for labels, value in self.values.items():
            family.add_metric([*self._base.values(), *labels], value)
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
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: defaultdict[tuple[str, ...], float] = defaultdict(float)
        if not labels:
            # shown before its first value, since its labels are known
            self._counts[()] = self._none()
        registry.register(self)

    def observe(self, value: float, *labels: str) -> None:
        """Take one value."""
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = self._none()
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[labels] += value

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """Show all."""
        bounds = [*map(str, map(float, self._bounds)), "+Inf"]
        family = HistogramMetricFamily(self._name, self._text, labels=[*self._base, *self._labels])
        for labels, counts in self._counts.items():
            buckets = list(zip(bounds, accumulate(counts), strict=True))
            family.add_metric([*self._base.values(), *labels], buckets, self._sums[labels])
        yield family

    def _none(self) -> list[int]:
        return [0] * (len(self._bounds) + 1)
