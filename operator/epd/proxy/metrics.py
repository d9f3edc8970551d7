"""The proxy's metrics. Names and the labels `namespace`, `epd`, `role` are an API that scalers and dashboards use.

Counts and renders; decides nothing.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from epd.api.names import Role
from epd.proxy.pods import Member
from epd.proxy.routing import InFlight
from epd.proxy.transport import Cause

_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
"""From a cached picture (10 ms) to the encode timeout (120 s)."""
_BASE: Final = ("namespace", "epd")
_ROLE: Final = (*_BASE, "role")


class Metrics:
    """All series of one proxy process, in a registry of their own."""

    def __init__(self, *, namespace: str, epd: str) -> None:
        self.registry = CollectorRegistry()
        self._base = (namespace, epd)
        self._encode = (namespace, epd, str(Role.ENCODE))
        r = self.registry
        self._requests = Counter(
            "epd_proxy_requests", "Requests by route and status sent", (*_BASE, "route", "code"), registry=r
        )
        self._in_flight = Gauge(
            "epd_proxy_in_flight",
            "In flight now: requests (role proxy and prefill side), items (role encode)",
            _ROLE,
            registry=r,
        )
        self._demand = Gauge(
            "epd_proxy_encode_demand",
            "Media items that wait for their embeddings, whether an encoder exists or not",
            _ROLE,
            registry=r,
        ).labels(*self._encode)
        self._wanted = Counter(
            "epd_proxy_encode_wanted_items",
            "Media items that requests brought and that an encoder should encode",
            _ROLE,
            registry=r,
        ).labels(*self._encode)
        self._encodes = Counter(
            "epd_proxy_encodes",
            "Media items by result: encoded, retried (by a second encoder), failed, coalesced (in another's primer)",
            (*_ROLE, "result"),
            registry=r,
        )
        self._fallbacks = Counter(
            "epd_proxy_fallbacks",
            "Requests whose media the prefill side encodes, by reason",
            (*_BASE, "reason"),
            registry=r,
        )
        self._retries = Counter(
            "epd_proxy_retries", "Second attempts on another engine, by cause", (*_ROLE, "cause"), registry=r
        )
        self._rewritten = Counter(
            "epd_proxy_rewritten_requests",
            "Requests sent to the prefill side without the media of one modality at least",
            _BASE,
            registry=r,
        ).labels(*self._base)
        self._resends = Counter(
            "epd_proxy_resends",
            "Requests that failed without media and were sent again with them, by cause",
            (*_BASE, "cause"),
            registry=r,
        )
        self._encode_seconds = Histogram(
            "epd_proxy_encode_seconds", "Duration of a primer", _ROLE, buckets=_SECONDS, registry=r
        ).labels(*self._encode)
        self._first_token = Histogram(
            "epd_proxy_time_to_first_token_seconds",
            "From the request's arrival to the first content of its stream",
            _BASE,
            buckets=_SECONDS,
            registry=r,
        ).labels(*self._base)
        self._members = Gauge("epd_proxy_members", "Engines known", (*_ROLE, "ready"), registry=r)
        self._disconnects = Counter(
            "epd_proxy_client_disconnects", "Clients that left before their answer was complete", _BASE, registry=r
        ).labels(*self._base)
        self._watch_errors = Counter(
            "epd_proxy_pod_watch_errors", "Failed or expired lists and watches of pods", _BASE, registry=r
        ).labels(*self._base)

    def request(self, *, route: str, code: int) -> None:
        """A reply's head was sent with status `code`."""
        self._requests.labels(*self._base, route, str(code)).inc()

    def encode_wanted(self, items: int) -> None:
        """`items` begin to wait for an encoder."""
        self._wanted.inc(items)
        self._demand.inc(items)

    def encode_settled(self, items: int) -> None:
        """`items` wait no longer: encoded, given up, or their client left."""
        self._demand.dec(items)

    def encoded(self, result: str, items: int = 1) -> None:
        """`items` ended with `result`."""
        if items:
            self._encodes.labels(*self._encode, result).inc(items)

    def encode_took(self, seconds: float) -> None:
        """One primer was answered after `seconds`."""
        self._encode_seconds.observe(seconds)

    def fallback(self, reason: str) -> None:
        """The prefill side is to encode a request's media."""
        self._fallbacks.labels(*self._base, reason).inc()

    def retried(self, role: Role, cause: Cause) -> None:
        """A second engine of `role` is tried."""
        self._retries.labels(*self._base, str(role), str(cause)).inc()

    def rewritten(self) -> None:
        """A request goes to the prefill side without media."""
        self._rewritten.inc()

    def resent(self, cause: Cause) -> None:
        """A request that failed without media is sent with them."""
        self._resends.labels(*self._base, str(cause)).inc()

    def first_token(self, seconds: float) -> None:
        """A stream showed its first content `seconds` after the request came."""
        self._first_token.observe(seconds)

    def client_left(self) -> None:
        """A client closed its connection before its answer was complete."""
        self._disconnects.inc()

    def watch_failed(self) -> None:
        """A list or watch of pods ended with an error."""
        self._watch_errors.inc()

    def render(self, *, members: Iterable[Member], load: InFlight, requests: int) -> bytes:
        """Render all series in the Prometheus text format, gauges of members and load as they are now."""
        members = tuple(members)
        known = Tally((str(member.role), str(member.ready).lower()) for member in members)
        for role in sorted({str(member.role) for member in members} | {str(Role.ENCODE), str(Role.PREFILL_DECODE)}):
            for ready in ("true", "false"):
                self._members.labels(*self._base, role, ready).set(known[role, ready])
            self._in_flight.labels(*self._base, role).set(sum(load[m.name] for m in members if m.role == role))
        self._in_flight.labels(*self._base, "proxy").set(requests)
        return generate_latest(self.registry)

    def totals(self) -> dict[str, dict[str, float]]:
        """Counters as `{name: {last label's value: total}}`, for `/status`."""
        totals: dict[str, dict[str, float]] = {}
        for name, counter in (
            ("requests", self._requests),
            ("encodes", self._encodes),
            ("fallbacks", self._fallbacks),
            ("retries", self._retries),
            ("resends", self._resends),
        ):
            sums: Tally[str] = Tally()
            for metric in counter.collect():
                for sample in metric.samples:
                    if sample.name.endswith("_total"):
                        sums[list(sample.labels.values())[-1]] += int(sample.value)
            totals[name] = dict(sums)
        return totals
