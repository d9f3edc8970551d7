"""Series of metrics by tenant, no more than there may be, and how API keys were read.

Counts; decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from epd.proxy.api_keys import ApiKeys
from epd.proxy.metrics import Metrics
from epd.proxy.series import Counts

SHOWN_TENANTS: Final = 1000
"""Tenants that have series of their own: with ten series each, as many series as Prometheus scrapes from 100 pods."""
OTHERS: Final = "(others)"
"""The label of the rest. No Secret has a key with parentheses."""


class TenantSeries(Collector):
    """Series by tenant, as many as there may be; and how keys were read."""

    def __init__(self, metrics: Metrics, *, namespace: str, epd: str) -> None:
        base = {"namespace": namespace, "epd": epd}
        self._base = base
        self.in_flight: dict[str, int] = {}
        self.keys: ApiKeys | None = None
        self._requests = Counts(
            metrics.registry,
            "epd_proxy_tenant_requests",
            "Requests with a valid API key by tenant and how they ended",
            base,
            ("tenant", "outcome"),
        )
        self._readings = Counts(
            metrics.registry, "epd_proxy_api_key_readings", "Times that API keys were read anew", base, ("result",)
        )
        self._shown: set[str] = set()
        metrics.registry.register(self)

    def ended(self, tenant: str, outcome: str) -> None:
        """A tenant's request is over."""
        self._requests.add(self._label(tenant), outcome)

    def read(self, succeeded: bool) -> None:
        """Keys were read anew, or can't be."""
        self._readings.add("succeeded" if succeeded else "failed")

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Show what is now."""
        labels, values = [*self._base], [*self._base.values()]
        running = GaugeMetricFamily("epd_proxy_tenant_in_flight", "Requests in flight", labels=[*labels, "tenant"])
        sums: dict[str, int] = {}
        for tenant, requests in self.in_flight.items():
            label = self._label(tenant)
            sums[label] = sums.get(label, 0) + requests
        for label, requests in sums.items():
            running.add_metric([*values, label], requests)
        yield running
        keys = GaugeMetricFamily("epd_proxy_api_keys", "API keys, lines that are none too", labels=[*labels, "state"])
        if self.keys is not None:
            keys.add_metric([*values, "valid"], len(self.keys.table))
            keys.add_metric([*values, "refused"], len(self.keys.table.refused))
        yield keys

    def _label(self, tenant: str) -> str:
        if tenant in self._shown:
            return tenant
        if len(self._shown) >= SHOWN_TENANTS:
            return OTHERS
        self._shown.add(tenant)
        return tenant
