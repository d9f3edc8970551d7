"""A proxy in this process, in front of engines of tests, over loopback sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

from epd.api.names import Role
from epd.proxy.admin import AdminPort
from epd.proxy.api_keys import ApiKeys
from epd.proxy.bodies import Bodies
from epd.proxy.exchange import Exchange
from epd.proxy.isolation import Isolation
from epd.proxy.listening import Listener
from epd.proxy.metrics import Metrics
from epd.proxy.pods import Members
from epd.proxy.pool import HttpTransport
from epd.proxy.routing import InFlight
from epd.proxy.server import DataPort
from epd.proxy.settings import Settings
from epd.proxy.tenancy import Tenancy
from epd.proxy.tenant_series import TenantSeries
from protocol.proxy.stubs import CHAT, StubEngine


@dataclass
class Proxy:
    """A running proxy; `http` sends to its data port, `admin` to its admin port."""

    members: Members
    load: InFlight
    metrics: Metrics
    data_port: DataPort
    http: aiohttp.ClientSession
    admin: aiohttp.ClientSession
    listener: Listener
    transport: HttpTransport

    async def chat(self, *content: Any, **fields: Any) -> aiohttp.ClientResponse:
        headers = fields.pop("headers", {})
        document = {"model": "tiny", "messages": [{"role": "user", "content": list(content)}], **fields}
        return await self.http.post(CHAT, json=document, headers=headers)

    def run_out_of_time(self) -> None:
        """Let the deadline of every request that is being answered be now, however fast the machine is."""
        for connection in self.listener._connections.all():
            turn = connection._serving.turn
            if turn is not None:
                connection._look(turn.deadline)

    def value(self, name: str, **labels: str) -> float:
        labels = {"namespace": "ns", "epd": "demo", **labels}
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


def settings(**fields: Any) -> Settings:
    roles = fields.pop("roles", frozenset({Role.ENCODE, Role.PREFILL_DECODE}))
    return Settings(host="127.0.0.1", port=0, admin_port=0, roles=roles, namespace="ns", epd="demo", **fields)


async def _serve(stack: AsyncExitStack, app: web.Application) -> aiohttp.ClientSession:
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, auto_decompress=False)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    return await stack.enter_async_context(aiohttp.ClientSession(f"http://{host}:{port}"))


@asynccontextmanager
async def proxy(*engines: StubEngine, room: int | None = None, **fields: Any) -> AsyncIterator[Proxy]:
    """Serve `engines` and a proxy in front of them; `fields` are those of Settings."""
    configured = settings(**fields)
    async with AsyncExitStack() as stack:
        for engine in engines:
            await stack.enter_async_context(engine.serve())
        members, load, metrics = Members(), InFlight(), Metrics(namespace="ns", epd="demo")
        members.replace(engine.member() for engine in engines)
        transport = await stack.enter_async_context(HttpTransport())
        exchange = Exchange(
            encodes=configured.encodes,
            rewrites=configured.rewrite,
            policy=configured.policy,
            limits=configured.limits,
            transport=transport,
            members=members,
            load=load,
            metrics=metrics,
            connector=configured.connector,
            hint_seconds=configured.hint_seconds,
            split=configured.split,
        )
        bodies = Bodies(room=room)
        tenancy = None
        if configured.api_keys is not None:
            series = TenantSeries(metrics, namespace="ns", epd="demo")
            tenancy = Tenancy(
                keys=ApiKeys(configured.api_keys, on_read=series.read),
                isolation=Isolation(configured.tenant_isolation, configured.media),
                most=configured.limits.max_in_flight_per_tenant,
                series=series,
            )
        data_port = DataPort(settings=configured, exchange=exchange, metrics=metrics, bodies=bodies, tenancy=tenancy)
        admin_port = AdminPort(
            settings=configured, members=members, load=load, metrics=metrics, exchange=exchange, data_port=data_port
        )
        listener = Listener(data_port)
        stack.push_async_callback(listener.close, 0.1)
        await listener.listen("127.0.0.1", 0)
        http = await stack.enter_async_context(aiohttp.ClientSession(f"http://{listener.addresses[0]}"))
        admin = await _serve(stack, admin_port.application())
        yield Proxy(members, load, metrics, data_port, http, admin, listener, transport)
