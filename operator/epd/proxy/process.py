"""The proxy's life: wire the parts, open the ports, follow the engines, drain on a signal.

Decides nothing about requests.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from contextlib import AsyncExitStack, suppress
from typing import Any

from aiohttp import web

from epd.proxy.access_log import NO_ACCESS_LOG, AccessLog
from epd.proxy.admin import AdminPort
from epd.proxy.api_keys import ApiKeys
from epd.proxy.apiserver import KubernetesPods, connection
from epd.proxy.bodies import Bodies, room_for_bodies
from epd.proxy.crowding import connection_limit
from epd.proxy.engine_tls import EngineTrust
from epd.proxy.exchange import Exchange
from epd.proxy.isolation import Isolation
from epd.proxy.listening import Listener
from epd.proxy.metrics import Metrics
from epd.proxy.pods import Members
from epd.proxy.pool import HttpTransport
from epd.proxy.probe import Prober
from epd.proxy.routing import InFlight
from epd.proxy.server import DataPort
from epd.proxy.settings import Settings
from epd.proxy.tenancy import Tenancy
from epd.proxy.tenant_series import TenantSeries
from epd.proxy.tls import Certificate
from epd.proxy.tracing import start_tracing
from epd.proxy.transport import Transport
from epd.proxy.watch import follow

log = logging.getLogger(__name__)

CLEANUP_SECONDS = 1.0
"""What clients get to read the last bytes of their answers after the drain."""
YOUNG_OBJECTS = 10_000
"""How many more objects make a collection of garbage worth while. A request makes a hundred and leaves hardly any cycle
of them, so with the interpreter's 700 the same living objects would be looked at over and over, in 5 % of all time."""


async def serve(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT, then drain. A second signal ends the drain."""
    stopping, hurried = _signals()
    async with AsyncExitStack() as stack:
        trust = _trust(settings, stack)
        members, load = Members(tls=settings.engine_tls is not None and settings.engine_tls.pods), InFlight()
        access_log = _access_log(settings, stack)
        tls = settings.tls_certificate is not None
        tracing = start_tracing(os.environ, namespace=settings.namespace, epd=settings.epd, tls=tls)
        if tracing is not None:
            stack.push_async_callback(tracing.close)
        metrics = Metrics(namespace=settings.namespace, epd=settings.epd)
        transport = await stack.enter_async_context(HttpTransport(tls=trust, on_reconnect=metrics.reconnected))
        exchange = _exchange(
            settings, transport if tracing is None else tracing.over(transport, members), members, load, metrics
        )
        data_port = DataPort(
            settings=settings,
            exchange=exchange,
            metrics=metrics,
            bodies=Bodies(room=room_for_bodies()),
            tenancy=_tenancy(settings, stack, metrics),
            tracing=tracing,
            access_log=access_log,
        )
        admin_port = AdminPort(
            settings=settings, members=members, load=load, metrics=metrics, exchange=exchange, data_port=data_port
        )
        following = await _follow_engines(settings, stack, transport, members, metrics)
        admin = await _listen_admin(stack, admin_port.application(), settings)
        data = await _listen(stack, data_port, settings)
        _spare_collections()
        await _first_of(following, asyncio.create_task(stopping.wait()))
        if following.done():
            # a proxy that no longer learns of its engines must not live on
            following.result()
        await _drain(settings, data_port, data, hurried)
        await admin.stop()
    log.info("stopped")


def _spare_collections() -> None:
    """What is there now stays: no collection needs to look at it again."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


def _signals() -> tuple[asyncio.Event, asyncio.Event]:
    """Set by the first signal to stop, and by each one after it."""
    stopping, hurried = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: (hurried if stopping.is_set() else stopping).set())
    return stopping, hurried


def _exchange(settings: Settings, transport: Transport, members: Members, load: InFlight, metrics: Metrics) -> Exchange:
    return Exchange(
        encodes=settings.encodes,
        rewrites=settings.rewrite,
        policy=settings.policy,
        limits=settings.limits,
        transport=transport,
        members=members,
        load=load,
        metrics=metrics,
        connector=settings.connector,
        hint_seconds=settings.hint_seconds,
        split=settings.split,
    )


def _trust(settings: Settings, stack: AsyncExitStack) -> EngineTrust | None:
    if settings.engine_tls is None:
        return None
    trust = EngineTrust(settings.engine_tls)
    stack.callback(asyncio.create_task(trust.follow()).cancel)
    return trust


async def _follow_engines(
    settings: Settings, stack: AsyncExitStack, transport: HttpTransport, members: Members, metrics: Metrics
) -> asyncio.Task[None]:
    if settings.static_members:
        prober = Prober(transport=transport, members=members, given=settings.static_members, probing=settings.probing)
        task = asyncio.create_task(prober.run())
    else:
        pods = KubernetesPods(await connection(), namespace=settings.namespace, epd=settings.epd)
        source = await stack.enter_async_context(pods)
        task = asyncio.create_task(follow(source, members, on_error=metrics.watch_failed))
    stack.callback(task.cancel)
    return task


def _access_log(settings: Settings, stack: AsyncExitStack) -> AccessLog | None:
    if settings.access_log == NO_ACCESS_LOG:
        return None
    access_log = AccessLog(settings.access_log, write=_write_out)
    stack.callback(access_log.close)
    return access_log


def _write_out(lines: bytes) -> None:
    # past Python's own buffer, whose lock a thread that waits for a slow reader would hold when the process ends
    with suppress(OSError):
        while lines:
            lines = lines[os.write(1, lines) :]


def _tenancy(settings: Settings, stack: AsyncExitStack, metrics: Metrics) -> Tenancy | None:
    """Tenants, where requests need API keys. Raises OSError where these can't be read."""
    if settings.api_keys is None:
        return None
    series = TenantSeries(metrics, namespace=settings.namespace, epd=settings.epd)
    series.keys = keys = ApiKeys(settings.api_keys, on_read=series.read)
    stack.callback(asyncio.create_task(keys.follow()).cancel)
    isolation = Isolation(settings.tenant_isolation, settings.media)
    return Tenancy(keys=keys, isolation=isolation, most=settings.limits.max_in_flight_per_tenant, series=series)


async def _listen_admin(stack: AsyncExitStack, app: web.Application, settings: Settings) -> web.BaseSite:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=CLEANUP_SECONDS)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    site = web.TCPSite(runner, settings.host, settings.admin_port)
    await site.start()
    log.info("admin port listens on %s", " ".join(f"{address[0]}:{address[1]}" for address in runner.addresses))
    return site


async def _listen(stack: AsyncExitStack, data_port: DataPort, settings: Settings) -> Listener:
    certificate = None
    if settings.tls_certificate is not None and settings.tls_key is not None:
        certificate = Certificate(chain=settings.tls_certificate, key=settings.tls_key)
        stack.callback(asyncio.create_task(certificate.follow()).cancel)
    context = certificate.context if certificate is not None else None
    limit = connection_limit(settings.limits.max_connections)
    listener = Listener(data_port, context=context, limit=limit)
    stack.push_async_callback(listener.close, CLEANUP_SECONDS)
    if settings.uds is not None:
        await listener.listen_on_path(settings.uds)
    else:
        await listener.listen(settings.host, settings.port)
    log.info("data port listens on %s", " ".join(listener.addresses))
    return listener


async def _drain(settings: Settings, data_port: DataPort, listener: Listener, hurried: asyncio.Event) -> None:
    data_port.draining = True
    log.info("draining: not ready, accepting for %g s more", settings.drain.delay_seconds)
    hurry = asyncio.create_task(hurried.wait())
    await _first_of(hurry, seconds=settings.drain.delay_seconds)
    listener.stop()
    await _first_of(hurry, asyncio.create_task(_end(data_port, listener)), seconds=settings.drain.timeout_seconds)
    if data_port.in_flight:
        log.warning("%d requests are broken off", data_port.in_flight)


async def _end(data_port: DataPort, listener: Listener) -> None:
    await data_port.idle.wait()
    # a reply counts as sent before a slow client has read the last of it
    await listener.all_read()


async def _first_of(*tasks: asyncio.Task[Any], seconds: float | None = None) -> None:
    await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
