"""The admin port: health and readiness for the kubelet, metrics, the topology for people, counters for the operator.

Shows; never changes anything and never serves clients of the model.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from epd.proxy.exchange import Exchange
from epd.proxy.health import State
from epd.proxy.metrics import Metrics
from epd.proxy.pods import Members
from epd.proxy.routing import InFlight
from epd.proxy.server import DataPort
from epd.proxy.settings import Settings
from epd.proxy.topology_page import HEADERS, render, wants_page

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class AdminPort:
    """Handles requests on the admin port."""

    def __init__(
        self,
        *,
        settings: Settings,
        members: Members,
        load: InFlight,
        metrics: Metrics,
        exchange: Exchange,
        data_port: DataPort,
    ) -> None:
        self._settings = settings
        self._members = members
        self._load = load
        self._metrics = metrics
        self._exchange = exchange
        self._data_port = data_port

    def application(self) -> web.Application:
        """The application to serve on the admin port."""
        app = web.Application()
        routes: dict[str, Callable[[], web.Response]] = {
            "/healthz": lambda: web.Response(text="ok\n"),
            "/readyz": self._readyz,
            "/metrics": self._metrics_page,
            "/status": self._status,
        }
        for path, respond in routes.items():
            app.router.add_get(path, _handler(respond))
        app.router.add_get("/topology", self._topology)
        return app

    def _readyz(self) -> web.Response:
        if self._data_port.draining:
            return web.Response(status=503, text="draining\n")
        if not (self._members.synced or self._settings.suspended):
            return web.Response(status=503, text="the engines have not been listed yet\n")
        return web.Response(text="ok\n")

    def _metrics_page(self) -> web.Response:
        health, members = self._exchange.health, self._members.all()
        # somebody scrapes where nobody looks at the topology: pods that went are forgotten
        self._load.begun([member.name for member in members])
        body = self._metrics.render(
            members=members,
            load=self._load,
            requests=self._data_port.in_flight,
            waiting=self._exchange.admission.waiting,
            ejected={member.name for member in members if health.state(member.name) is not State.HEALTHY},
        )
        return web.Response(body=body, headers={"content-type": METRICS_TYPE})

    def _document(self) -> dict[str, Any]:
        known = self._members.all()
        begun = self._load.begun([member.name for member in known])
        members = [
            {
                "name": member.name,
                "role": member.role,
                "ready": member.ready,
                "health": self._exchange.health.state(member.name),
                "pairing": member.pairing,
                "modelVersion": member.model_version,
                "address": member.address,
                "inFlight": self._load[member.name],
                "begun": begun[member.name],
            }
            for member in known
        ]
        return {
            "time": time.time(),
            "namespace": self._settings.namespace,
            "epd": self._settings.epd,
            "roles": sorted(self._settings.roles),
            "encoderFailurePolicy": self._settings.policy,
            "suspended": self._settings.suspended,
            "draining": self._data_port.draining,
            "inFlight": self._data_port.in_flight,
            "queued": self._exchange.admission.waiting,
            "totals": {name: int(sum(by.values())) for name, by in self._metrics.totals().items()},
            "misconfigured": {
                pairing: {"cause": complaint.cause, "model": complaint.model, "message": f"encoders {complaint}"}
                for pairing, complaint in self._exchange.adapters.complaints().items()
            },
            "members": members,
        }

    async def _topology(self, request: web.Request) -> web.Response:
        document = self._document()
        if wants_page(request.headers.get("accept", "")):
            return web.Response(body=render(document).encode(), headers=HEADERS)
        return web.json_response(document, headers={"vary": "accept"})

    def _status(self) -> web.Response:
        ready = [member.role for member in self._members.all() if member.ready]
        return web.json_response(
            {
                "synced": self._members.synced,
                "draining": self._data_port.draining,
                "inFlight": self._data_port.in_flight,
                "queued": self._exchange.admission.waiting,
                "ready": {role: ready.count(role) for role in sorted(self._settings.roles)},
                **self._metrics.totals(),
            }
        )


def _handler(respond: Callable[[], web.Response]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(_: web.Request) -> web.Response:
        return respond()

    return handle
