"""The running operator: connects, starts workers, resync and probes, watches until told to stop, then drains.

Wires the parts; each part's rules are in its own module.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from epd.api import names
from epd.controller import app, cache, health, keys, kinds, metrics
from epd.controller.build import ThisBuild
from epd.controller.cluster import Cluster, KubeCluster
from epd.controller.dispatch import Dispatcher
from epd.controller.errors import ClusterError, NotFound
from epd.controller.events import Recorder
from epd.controller.kinds import Kind, Manifest
from epd.controller.queue import Priority, WorkQueue
from epd.controller.reconcile import Reconciler
from epd.controller.reconcile_claim import ClaimReconciler, Problems
from epd.controller.reports import Reports, client
from epd.controller.worker import work

logger = logging.getLogger(__name__)

WORKERS: Final = 4
"""A reconcile mostly waits for the API server; more workers than this only queue up for the one event loop."""

RESYNC_JITTER: Final = 0.2
"""Operators of many clusters, and objects of one, must not fall into step."""

CRD_POLL_SECONDS: Final = 2.0
"""How often to look whether the CustomResourceDefinition is served yet: kopf only knows kinds it finds at its start."""

REFRESH_POLL_SECONDS: Final = 10.0
"""How often to look for reports of collectors that are old; a sixth of the age that they may have."""

DRAIN_SECONDS: Final = 10.0
"""How long running reconciles may take after SIGTERM; what is broken off then is taken up by the next operator."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the flags say; times in seconds."""

    namespaces: tuple[str, ...] = ()
    operator_image: str
    operator_image_pull_policy: str | None = None
    metrics_port: int = 8080
    health_port: int = 8081
    resync: float = 300.0
    watch_lag: float = health.WATCH_LAG_SECONDS


async def run(options: Options) -> None:
    """Run until SIGTERM or SIGINT. Raises when the API server cannot be reached or a watch fails for good."""
    monitor = health.WatchMonitor(limit=options.watch_lag)
    cluster = await KubeCluster.connect(on_read=monitor.read)
    queue = WorkQueue(metrics.CONTROLLER)
    probe = health.Health(monitor, longest_running=queue.longest_running_seconds)
    servers = await health.serve(probe, health_port=options.health_port, metrics_port=options.metrics_port)
    build = ThisBuild(
        operator_image=options.operator_image, operator_image_pull_policy=options.operator_image_pull_policy
    )
    problems: Problems = {}
    reports = Reports(client(), shown=cache.shown)
    recorder = Recorder(cluster, instance=socket.gethostname())
    reconciler = Dispatcher(
        deployments=Reconciler(cluster, build, recorder, reports, problems, on_gone=monitor.forget),
        claims=ClaimReconciler(cluster, build, problems, on_gone=monitor.forget),
    )
    metrics.MAX_CONCURRENT.labels(metrics.CONTROLLER).set(WORKERS)
    stop = asyncio.Event()
    tasks = [asyncio.create_task(work(queue, reconciler), name=f"worker-{n}") for n in range(WORKERS)]
    tasks.append(asyncio.create_task(_tick(probe, monitor, queue), name="tick"))
    tasks.append(asyncio.create_task(_resync(cluster, queue, probe, options), name="resync"))
    tasks.append(asyncio.create_task(_refresh(reports, queue), name="refresh"))

    def started() -> None:
        probe.watching = True
        tasks.append(_stop_on_signals(queue, stop))

    try:
        await _served(cluster, options.namespaces)
        await app.watch(namespaces=options.namespaces, deliver=_deliver(queue, monitor), started=started, stop=stop)
    finally:
        queue.shutdown()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(server.cleanup() for server in servers), cluster.close(), reports.close())


def _deliver(queue: WorkQueue, monitor: health.WatchMonitor) -> Callable[[Kind, Manifest], None]:
    def deliver(kind: Kind, obj: Manifest) -> None:
        monitor.delivered(kind, obj)
        for key in keys.keys_of(kind, obj):
            queue.add(key)

    return deliver


async def _served(cluster: Cluster, namespaces: tuple[str, ...]) -> None:
    while True:
        try:
            await cluster.list(kinds.EPD, namespaces[0] if namespaces else "")
        except NotFound:
            logger.warning("the CustomResourceDefinition %s.%s is not served yet", names.PLURAL, names.GROUP)
        except ClusterError as e:
            logger.warning("%s", e)
        else:
            return
        await asyncio.sleep(CRD_POLL_SECONDS)


async def _resync(cluster: Cluster, queue: WorkQueue, probe: health.Health, options: Options) -> None:
    while True:
        try:
            for namespace in options.namespaces or ("",):
                for epd in await cluster.list(kinds.EPD, namespace):
                    for key in keys.keys_of(kinds.EPD, epd):
                        queue.add(key, priority=Priority.LOW)
            probe.listed = True
        except ClusterError as e:
            logger.warning("resync: %s", e)
        # Until the first success at the pace of the CRD poll: readiness waits for it.
        pace = options.resync if probe.listed else CRD_POLL_SECONDS
        await asyncio.sleep(pace * random.uniform(1 - RESYNC_JITTER, 1 + RESYNC_JITTER))  # noqa: S311 (no secret)


async def _refresh(reports: Reports, queue: WorkQueue) -> None:
    while True:
        await asyncio.sleep(REFRESH_POLL_SECONDS)
        for key in await reports.refresh():
            queue.add(key, priority=Priority.LOW)


async def _tick(probe: health.Health, monitor: health.WatchMonitor, queue: WorkQueue) -> None:
    while True:
        probe.tick()
        for key in monitor.overdue():
            queue.add(key)
        await asyncio.sleep(health.TICK_SECONDS)


def _stop_on_signals(queue: WorkQueue, stop: asyncio.Event) -> asyncio.Task[None]:
    """Take the signals from kopf, which would cancel every task of the loop at once: reconciles are drained first."""
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)

    async def drain() -> None:
        await told.wait()
        logger.info("stopping: %d reconciles are finished first", queue.running)
        queue.shutdown()
        try:
            await asyncio.wait_for(queue.drained(), DRAIN_SECONDS)
        except TimeoutError:
            logger.warning("reconciles still running after %.0f s are broken off", DRAIN_SECONDS)
        stop.set()

    return asyncio.create_task(drain(), name="drain")
