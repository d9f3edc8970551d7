"""Whether this process still does its work: liveness that notices a deaf watch, readiness, and their HTTP endpoints.

A watch can stay open and deliver nothing (load balancers, hung proxies, a dead task), and then every probe that only
asks whether the process runs stays green. So what reconciles read by list is compared with what the watches
delivered: a resource version that a list has shown, and the watch still owes a minute later, makes the process unfit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from epd.api import names
from epd.controller import keys, kinds, metrics
from epd.controller.kinds import Kind, Manifest

WATCH_LAG_SECONDS: Final = 60.0
"""Watches lag by milliseconds; a reconnect with backoff after an outage of the API server may take half a minute."""

STUCK_SECONDS: Final = 600.0
"""No reconcile takes so long: its some twenty requests have 30 s each at most."""

TICK_SECONDS: Final = 5.0
"""How often the event loop reports that it turns."""

STOPPED_SECONDS: Final = 60.0
"""Without a tick for so long the loop is blocked most of the time, though a probe got through."""

Scope = tuple[Kind, str]
"""A kind, and the key whose objects of that kind were read."""


@dataclass
class _Debt:
    since: float
    version: int
    confirmed: bool = False


class WatchMonitor:
    """Compares reads with deliveries by resource version, which grow with time (KEP-5504; true of etcd always)."""

    def __init__(self, *, limit: float = WATCH_LAG_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._delivered: dict[tuple[Kind, str], int] = {}
        self._debts: dict[Scope, _Debt] = {}

    def delivered(self, kind: Kind, obj: Manifest) -> None:
        """The watch of a kind has delivered this object."""
        stream, version = (kind, obj["metadata"].get("namespace", "")), _version(obj)
        self._delivered[stream] = max(version, self._delivered.get(stream, 0))
        for scope in [s for s, debt in self._debts.items() if s[0] == kind and _paid(s, debt, stream, version)]:
            del self._debts[scope]

    def read(self, kind: Kind, objects: tuple[Manifest, ...]) -> None:
        """A get or list has returned these objects: of one key, or (of the parents) of a namespace."""
        if kind not in kinds.WATCHED:
            return
        newest: dict[str, int] = {}
        for obj in objects:
            if (key := keys.owner_key(kind, obj)) is not None:
                newest[key] = max(_version(obj), newest.get(key, 0))
        for key, version in newest.items():
            self._compare((kind, key), version)

    def _compare(self, scope: Scope, version: int) -> None:
        namespace = keys.namespace_of(scope[1])
        if version <= self._delivered.get((scope[0], namespace), 0):
            # Also when the object that was owed has vanished meanwhile: a watch that starts anew does not tell of it.
            self._debts.pop(scope, None)
            return
        debt = self._debts.setdefault(scope, _Debt(self._clock(), version))
        debt.confirmed = self._clock() - debt.since >= self._limit

    def overdue(self) -> frozenset[str]:
        """Keys to read again: only a read this much later tells a deaf watch from a vanished object."""
        now = self._clock()
        return frozenset(key for (_, key), debt in self._debts.items() if now - debt.since >= self._limit)

    def forget(self, key: str) -> None:
        """What the key is about is gone, and with it what was owed for it."""
        for scope in [s for s in self._debts if s[1] == key]:
            del self._debts[scope]

    def deaf(self) -> tuple[str, ...]:
        """Kinds whose watch has provably missed a change, sorted."""
        return tuple(sorted({scope[0].plural for scope, debt in self._debts.items() if debt.confirmed}))

    def lag(self, kind: Kind) -> float:
        """For how many seconds the watch of a kind has owed something at most."""
        now = self._clock()
        return max((now - debt.since for (k, _), debt in self._debts.items() if k == kind), default=0.0)


def _paid(scope: Scope, debt: _Debt, stream: tuple[Kind, str], version: int) -> bool:
    return keys.namespace_of(scope[1]) == stream[1] and version >= debt.version


def _version(obj: Manifest) -> int:
    text = str(obj["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdecimal() else 0


class Health:
    """The answers to the kubelet's probes."""

    def __init__(
        self,
        monitor: WatchMonitor,
        *,
        longest_running: Callable[[], float] = lambda: 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monitor = monitor
        self._longest_running = longest_running
        self._clock = clock
        self._ticked = clock()
        self.watching = False
        self.listed = False
        for kind in kinds.WATCHED:
            metrics.WATCH_LAG.labels(kind.plural).set_function(partial(monitor.lag, kind))

    def tick(self) -> None:
        """The event loop turns: to be called every `TICK_SECONDS`."""
        now = self._clock()
        metrics.EVENT_LOOP_LAG.set(max(0.0, now - self._ticked - TICK_SECONDS))
        self._ticked = now

    def unfit(self) -> str:
        """Why the process should be restarted; empty: it should not."""
        if deaf := self._monitor.deaf():
            return f"watch of {', '.join(deaf)} is deaf: lists show changes that it has not delivered"
        if (age := self._longest_running()) > STUCK_SECONDS:
            return f"a reconcile has been running for {age:.0f} s"
        if (age := self._clock() - self._ticked) > STOPPED_SECONDS:
            return f"the event loop last turned {age:.0f} s ago"
        return ""

    def unready(self) -> str:
        """Why the process does not serve yet; empty: it does."""
        if not self.listed:
            return f"{names.PLURAL}.{names.GROUP} could not be listed yet"
        return "" if self.watching else "watches are not open yet"


async def serve(health: Health, *, health_port: int, metrics_port: int) -> list[web.AppRunner]:
    """Open /healthz and /readyz on one port and /metrics on the other, on all addresses; 0 lets the system choose."""

    async def healthz(_: web.Request) -> web.Response:
        return _answer(health.unfit())

    async def readyz(_: web.Request) -> web.Response:
        return _answer(health.unfit() or health.unready())

    async def metricz(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    probes = await _listen([web.get("/healthz", healthz), web.get("/readyz", readyz)], health_port)
    return [probes, await _listen([web.get("/metrics", metricz)], metrics_port)]


def _answer(problem: str) -> web.Response:
    return web.Response(text=problem or "ok", status=503 if problem else 200)


async def _listen(routes: list[web.RouteDef], port: int) -> web.AppRunner:
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner
