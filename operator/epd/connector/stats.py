"""The connector's counts in vLLM's own statistics: summed on their way to the API server, exported as `vllm:epd_ec_*`.

Runs in engine core and API server. Counts nothing itself.
"""

# vLLM and torch are not there when types are checked.
# mypy: disable-error-code="import-not-found", allow-subclassing-any

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from vllm.distributed.ec_transfer.ec_connector.metrics import ECConnectorPromMetrics, ECConnectorStats

from .counters import BY_REASON, COUNTERS, GAUGES, OBSERVED, merge

PREFIX: Final = "vllm:epd_ec_"
_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Seconds: from a small entry in the page cache to the default deadline of a lookup."""
_SAYS: Final = {
    "hits": "Items of requests that were served from the encoder-cache store.",
    "misses": "Items of requests that the store could not serve, whatever the reason.",
    "loads": "Items that workers were told to read; above the hits where one was preempted and read again.",
    "saves": "Embeddings that an encoder saw through to the store, those that were there already included.",
    "republished": "Of these, embeddings of which the store had lost the entry.",
    "loaded_bytes": "Bytes copied from the store.",
    "saved_bytes": "Bytes written to the store.",
    "save_seconds": "Seconds in which encoder steps waited for the store.",
    "probe_timeouts": "Lookups that were not answered within their deadline.",
    "budget_full": "Lookups that found no room in the local copies at first.",
    "unavailable_requests": "Requests failed because an item without pixels has no usable entry.",
    "local_encodes": "Items that a consumer encoded itself.",
    "load_failures": "Local copies or pins that a worker could not read.",
    "rejects": "Items whose entry was not used although there may be one, by reason.",
    "save_failures": "Embeddings that did not reach the store, by reason.",
    "errors": "Mistakes of the connector's own in the scheduler, by the hook they would have left, as reason.",
    "load_seconds": "Seconds to find, copy and verify an entry.",
    "held": "Local copies and pins held for requests and steps.",
}


class ManagedECStats(ECConnectorStats):
    """What was counted between two steps, or in a logging interval."""

    def reset(self) -> None:
        """Forget everything."""
        self.data: dict[str, Any] = {}

    def aggregate(self, other: ECConnectorStats) -> ECConnectorStats:
        """Add later counts."""
        merge(self.data, other.data)
        return self

    def reduce(self) -> dict[str, int | float]:
        """Return one number per count, for the log line."""
        reduced: dict[str, int | float] = {}
        for name, value in self.data.items():
            if isinstance(value, Mapping):
                reduced |= {f"{name}[{reason}]": amount for reason, amount in value.items()}
            elif isinstance(value, list):
                reduced[f"{name}_avg"] = round(sum(value) / len(value), 4) if value else 0
            else:
                reduced[name] = round(value, 4)
        return reduced

    def is_empty(self) -> bool:
        """Tell whether nothing was counted."""
        return not self.data


class ManagedECPromMetrics(ECConnectorPromMetrics):
    """The metrics of all engines of one API server."""

    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: Any) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._plain = {name: self._counter_cls(PREFIX + name, _SAYS[name], labelnames) for name in COUNTERS}
        self._by_reason = {
            name: self._counter_cls(PREFIX + name, _SAYS[name], [*labelnames, "reason"]) for name in BY_REASON
        }
        self._gauges = {
            name: self._gauge_cls(PREFIX + name, _SAYS[name], labelnames, multiprocess_mode="mostrecent")
            for name in GAUGES
        }
        self._observed = {
            name: self._histogram_cls(PREFIX + name, _SAYS[name], labelnames, buckets=_BUCKETS) for name in OBSERVED
        }
        for labels in per_engine_labelvalues.values():  # a metric that stays at zero says more than none
            for metric in (*self._plain.values(), *self._gauges.values(), *self._observed.values()):
                metric.labels(*labels)

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Add one delta of one engine."""
        labels = self.per_engine_labelvalues[engine_idx]
        for name, value in transfer_stats_data.items():
            if name in self._plain:
                self._plain[name].labels(*labels).inc(value)
            elif name in self._gauges:
                self._gauges[name].labels(*labels).set(value)
            elif name in self._by_reason:
                for reason, amount in value.items():
                    self._by_reason[name].labels(*labels, reason).inc(amount)
            elif name in self._observed:
                for one in value:
                    self._observed[name].labels(*labels).observe(one)
