"""The proxy's metrics. Names and the labels `namespace`, `epd`, `role` are an API that scalers and dashboards use.

Counts and renders; decides nothing.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Collection, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, generate_latest

from epd.api.names import Role
from epd.proxy.pods import Member
from epd.proxy.routing import InFlight
from epd.proxy.series import Counts, Spread
from epd.proxy.transport import Cause

_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
"""From a cached picture (10 ms) to the encode timeout (120 s)."""
_REQUEST_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""From what needs no model (5 ms) to the request timeout (600 s)."""
_ROLE: Final = ("namespace", "epd", "role")
_SHOWN_ROLES: Final = frozenset({str(Role.ENCODE), str(Role.PREFILL_DECODE)})
"""Shown before anybody has them. Any role is shown from then on, lest the last numbers stay when nobody has it."""


class Metrics:
    """All series of one proxy process, in a registry of their own."""

    def __init__(self, *, namespace: str, epd: str) -> None:
        self.registry = CollectorRegistry()
        # memory, CPU and file descriptors, by the names that all programs give them, read when they are asked for
        ProcessCollector(registry=self.registry)
        self._base = (namespace, epd)
        self._roles = _SHOWN_ROLES
        self._waiting_items = 0
        self._count_requests(namespace, epd)
        self._count_items(namespace, epd)
        self._count_trouble(namespace, epd)
        self._measure(namespace, epd)

    def _count_requests(self, namespace: str, epd: str) -> None:
        r, base = self.registry, {"namespace": namespace, "epd": epd}
        self._requests = Counts(r, "epd_proxy_requests", "Requests by route and status sent", base, ("route", "code"))
        self._seconds = Spread(
            r,
            "epd_proxy_request_seconds",
            "From a request's head to the last byte of its reply, by route and by how it ended",
            base,
            _REQUEST_SECONDS,
            ("route", "outcome"),
        )
        self._received = Counts(r, "epd_proxy_request_body_bytes", "Bytes of bodies from clients", base, ("route",))
        self._sent = Counts(r, "epd_proxy_response_body_bytes", "Bytes of bodies to clients", base, ("route",))
        self._retries = Counts(
            r, "epd_proxy_retries", "Second attempts on another engine, by cause", base, ("role", "cause")
        )
        self._rewritten = Counts(
            r,
            "epd_proxy_rewritten_requests",
            "Requests sent to the prefill side without the media of one modality at least",
            base,
        )
        self._resends = Counts(
            r,
            "epd_proxy_resends",
            "Requests that failed without media and were sent again with them, by cause",
            base,
            ("cause",),
        )

    def _count_items(self, namespace: str, epd: str) -> None:
        r, base = self.registry, {"namespace": namespace, "epd": epd}
        encode = base | {"role": str(Role.ENCODE)}
        self._wanted = Counts(
            r,
            "epd_proxy_encode_wanted_items",
            "Media items that requests brought and that an encoder should encode: not those known to be in the store",
            encode,
        )
        self._encodes = Counts(
            r,
            "epd_proxy_encodes",
            "Media items by result: encoded, retried (by a second encoder), failed, coalesced (in another's primer), "
            "hinted (known to be in the store)",
            encode,
            ("result",),
        )
        self._fallbacks = Counts(
            r, "epd_proxy_fallbacks", "Requests whose media the prefill side encodes, by reason", base, ("reason",)
        )

    def _count_trouble(self, namespace: str, epd: str) -> None:
        r, base = self.registry, {"namespace": namespace, "epd": epd}
        self._ejections = Counts(
            r, "epd_proxy_ejections", "Engines put out of rotation because requests to them failed", base, ("role",)
        )
        self._misconfigured = Counts(
            r,
            "epd_proxy_encoders_misconfigured",
            "Requests for which encoders answered 404 and should not have, by cause: unknown-model, no-route",
            base,
            ("cause",),
        )
        self._disconnects = Counts(
            r, "epd_proxy_client_disconnects", "Clients that left before their answer was complete", base
        )
        self._reconnects = Counts(
            r,
            "epd_proxy_reconnects",
            "Calls sent once more, to the same engine, because the connection that was kept for them had been closed",
            base,
        )
        self._watch_errors = Counts(
            r, "epd_proxy_pod_watch_errors", "Failed or expired lists and watches of pods", base
        )

    def _measure(self, namespace: str, epd: str) -> None:
        r, base = self.registry, {"namespace": namespace, "epd": epd}
        encode = base | {"role": str(Role.ENCODE)}
        self._encode_seconds = Spread(r, "epd_proxy_encode_seconds", "Duration of a primer", encode, _SECONDS)
        self._first_token = Spread(
            r,
            "epd_proxy_time_to_first_token_seconds",
            "From the request's arrival to the first content of its stream",
            base,
            _SECONDS,
        )
        self._queue_seconds = Spread(
            r, "epd_proxy_queue_seconds", "How long requests that had to wait for room at an engine did", base, _SECONDS
        )
        self._waiting = Gauge("epd_proxy_queued", "Requests that wait for room at an engine", tuple(base), registry=r)
        self._in_flight = Gauge(
            "epd_proxy_in_flight",
            "In flight now: requests (role proxy and prefill side), items (role encode)",
            _ROLE,
            registry=r,
        )
        Gauge(
            "epd_proxy_encode_demand",
            "Media items that wait for their embeddings, whether an encoder exists or not",
            _ROLE,
            registry=r,
        ).labels(*encode.values()).set_function(lambda: self._waiting_items)
        self._members = Gauge("epd_proxy_members", "Engines known", (*_ROLE, "ready"), registry=r)
        self._ejected = Gauge(
            "epd_proxy_ejected_members", "Engines out of rotation because requests to them failed", _ROLE, registry=r
        )

    def request(self, *, route: str, code: int) -> None:
        """A reply's head was sent with status `code`."""
        self._requests.add(route, str(code))

    def ended(self, route: str, outcome: str, *, seconds: float, received: int, sent: int) -> None:
        """A request is over, `seconds` after its head came; its bodies had as many bytes."""
        self._seconds.observe(seconds, route, outcome)
        self._received.add(route, amount=received)
        self._sent.add(route, amount=sent)

    def encode_wanted(self, items: int) -> None:
        """`items` begin to wait for an encoder."""
        self._wanted.add(amount=items)
        self._waiting_items += items

    def encode_settled(self, items: int) -> None:
        """`items` wait no longer: encoded, given up, or their client left."""
        self._waiting_items -= items

    def encoded(self, result: str, items: int = 1) -> None:
        """`items` ended with `result`."""
        if items:
            self._encodes.add(result, amount=items)

    def encode_took(self, seconds: float) -> None:
        """One primer was answered after `seconds`."""
        self._encode_seconds.observe(seconds)

    def fallback(self, reason: str) -> None:
        """The prefill side is to encode a request's media."""
        self._fallbacks.add(reason)

    def retried(self, role: Role, cause: Cause) -> None:
        """A second engine of `role` is tried."""
        self._retries.add(str(role), str(cause))

    def rewritten(self) -> None:
        """A request goes to the prefill side without media."""
        self._rewritten.add()

    def resent(self, cause: Cause) -> None:
        """A request that failed without media is sent with them."""
        self._resends.add(str(cause))

    def ejected(self, role: Role) -> None:
        """An engine of `role` is put out of rotation."""
        self._ejections.add(str(role))

    def encoders_misconfigured(self, cause: str) -> None:
        """Encoders answered 404 for what they should serve."""
        self._misconfigured.add(cause)

    def queued(self, seconds: float) -> None:
        """A request waited for room at an engine, in vain or not."""
        self._queue_seconds.observe(seconds)

    def first_token(self, seconds: float) -> None:
        """A stream showed its first content `seconds` after the request came."""
        self._first_token.observe(seconds)

    def client_left(self) -> None:
        """A client closed its connection before its answer was complete."""
        self._disconnects.add()

    def reconnected(self) -> None:
        """A call was sent once more, over a new connection, since the kept one had been closed."""
        self._reconnects.add()

    def watch_failed(self) -> None:
        """A list or watch of pods ended with an error."""
        self._watch_errors.add()

    def render(
        self,
        *,
        members: Iterable[Member],
        load: InFlight,
        requests: int,
        waiting: int = 0,
        ejected: Collection[str] = (),
    ) -> bytes:
        """Render all series in the Prometheus text format, gauges as they are now; `ejected` has names of members."""
        members = tuple(members)
        known = Tally((str(member.role), str(member.ready).lower()) for member in members)
        self._roles |= {str(member.role) for member in members}
        for role in sorted(self._roles):
            for ready in ("true", "false"):
                self._members.labels(*self._base, role, ready).set(known[role, ready])
            ours = [member for member in members if member.role == role]
            self._in_flight.labels(*self._base, role).set(sum(load[member.name] for member in ours))
            self._ejected.labels(*self._base, role).set(sum(member.name in ejected for member in ours))
        self._in_flight.labels(*self._base, "proxy").set(requests)
        self._waiting.labels(*self._base).set(waiting)
        return generate_latest(self.registry)

    def totals(self) -> dict[str, dict[str, float]]:
        """Counters as `{name: {last label's value: total}}`, for `/status`."""
        totals: dict[str, dict[str, float]] = {}
        for name, counts in (
            ("requests", self._requests),
            ("encodes", self._encodes),
            ("fallbacks", self._fallbacks),
            ("retries", self._retries),
            ("resends", self._resends),
            ("misconfigured", self._misconfigured),
        ):
            sums: Tally[str] = Tally()
            for labels, count in counts.counts.items():
                sums[labels[-1]] += int(count.value)
            totals[name] = dict(sums)
        return totals
