"""Prometheus metrics of the operator, under the names of controller-runtime, so that its dashboards work.

Names and buckets: book.kubebuilder.io/reference/metrics-reference. Declares; counts nothing by itself.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

CONTROLLER: Final = "epddeployment"
"""Value of the labels `controller` and `name`."""

_SECONDS: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 1.75,
    2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60,
)  # fmt: skip

RECONCILE_TOTAL: Final = Counter(
    "controller_runtime_reconcile_total", "Reconciliations per result", ("controller", "result")
)
RECONCILE_ERRORS: Final = Counter(
    "controller_runtime_reconcile_errors_total", "Reconciliations that ended in an error", ("controller",)
)
TERMINAL_ERRORS: Final = Counter(
    "controller_runtime_terminal_reconcile_errors_total", "Errors that retrying cannot mend", ("controller",)
)
RECONCILE_SECONDS: Final = Histogram(
    "controller_runtime_reconcile_time_seconds", "Length of a reconciliation", ("controller",), buckets=_SECONDS
)
ACTIVE_WORKERS: Final = Gauge("controller_runtime_active_workers", "Workers that reconcile now", ("controller",))
MAX_CONCURRENT: Final = Gauge("controller_runtime_max_concurrent_reconciles", "Workers", ("controller",))

QUEUE_DEPTH: Final = Gauge("workqueue_depth", "Keys that wait", ("name",))
QUEUE_ADDS: Final = Counter("workqueue_adds_total", "Keys added", ("name",))
QUEUE_RETRIES: Final = Counter("workqueue_retries_total", "Keys added again after an error", ("name",))
# client-go's buckets: powers of ten from 10 ns; below 0.1 ms nothing can be told apart in Python.
_QUEUE_BUCKETS: Final = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)
QUEUE_WAIT: Final = Histogram(
    "workqueue_queue_duration_seconds", "How long a key waits", ("name",), buckets=_QUEUE_BUCKETS
)
QUEUE_WORK: Final = Histogram(
    "workqueue_work_duration_seconds", "How long a key is worked on", ("name",), buckets=_QUEUE_BUCKETS
)
QUEUE_LONGEST: Final = Gauge(
    "workqueue_longest_running_processor_seconds", "Age of the oldest reconciliation now running", ("name",)
)

REST_CLIENT_REQUESTS: Final = Counter(
    "rest_client_requests_total", "Requests to the API server by status code and method", ("code", "method")
)
CONDITION: Final = Gauge(
    "epd_condition",
    "Conditions of EPDDeployments: 1 for the status that holds, 0 for the others",
    ("namespace", "name", "type", "status"),
)
CACHE_USED: Final = Gauge(
    "epd_encoder_cache_used_bytes",
    "Bytes of all cache versions on the claim of an EPDDeployment, as its collector reports, to three digits",
    ("namespace", "name", "claim"),
)
CACHE_ENTRIES: Final = Gauge(
    "epd_encoder_cache_entries",
    "Entries of all cache versions on the claim of an EPDDeployment, as its collector reports, to three digits",
    ("namespace", "name", "claim"),
)
EVENT_LOOP_LAG: Final = Gauge("epd_event_loop_lag_seconds", "How late the event loop woke up last")
WATCH_LAG: Final = Gauge(
    "epd_watch_lag_seconds", "How long the watch of a kind has owed us a change that a list showed", ("kind",)
)

STATUSES: Final = ("True", "False", "Unknown")


class ConditionGauges:
    """Keeps `epd_condition` equal to the last status of each object, and removes what is gone."""

    def __init__(self) -> None:
        self._types: dict[tuple[str, str], set[str]] = {}

    def report(self, key: str, conditions: dict[str, str]) -> None:
        """Set the gauges of `namespace/name`; `conditions` maps type to status. Empty: the object is gone."""
        namespace, name = key.split("/", 1)
        for gone in self._types.pop((namespace, name), set()) - set(conditions):
            for status in STATUSES:
                CONDITION.remove(namespace, name, gone, status)
        if conditions:
            self._types[namespace, name] = set(conditions)
        for type_, held in conditions.items():
            for status in STATUSES:
                CONDITION.labels(namespace, name, type_, status).set(1 if status == held else 0)


class CacheGauges:
    """Keeps the gauges of the encoder cache equal to the last status of each object, and removes what is not known."""

    def __init__(self) -> None:
        self._claims: dict[str, str] = {}

    def report(self, key: str, claim: str = "", *, used: int | None = None, entries: int | None = None) -> None:
        """Set the gauges of `namespace/name`; without `used` (bytes) and `entries` they go."""
        namespace, name = key.split("/", 1)
        known = used is not None and entries is not None
        held = self._claims.pop(key, "")
        if held and (not known or held != claim):
            CACHE_USED.remove(namespace, name, held)
            CACHE_ENTRIES.remove(namespace, name, held)
        if used is not None and entries is not None:
            self._claims[key] = claim
            CACHE_USED.labels(namespace, name, claim).set(used)
            CACHE_ENTRIES.labels(namespace, name, claim).set(entries)
