from __future__ import annotations

from typing import Any

from aiohttp.test_utils import unused_port
from httpx import AsyncClient

from epd.controller import health, kinds
from epd.controller.health import Health, WatchMonitor


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def deployment(version: int, name: str = "qwen", namespace: str = "ai") -> dict[str, Any]:
    metadata = {"name": "d", "namespace": namespace, "labels": {"epd.dev/name": name}, "resourceVersion": str(version)}
    return {"metadata": metadata}


def monitor() -> tuple[WatchMonitor, Time]:
    time = Time()
    return WatchMonitor(limit=60, clock=time), time


def test_a_change_that_is_delivered_in_time_is_no_debt() -> None:
    watched, time = monitor()
    watched.read(kinds.DEPLOYMENT, (deployment(5),))
    assert watched.lag(kinds.DEPLOYMENT) == 0
    time.now = 30
    assert watched.lag(kinds.DEPLOYMENT) == 30
    watched.delivered(kinds.DEPLOYMENT, deployment(5))
    time.now = 90
    watched.read(kinds.DEPLOYMENT, (deployment(5),))
    assert (watched.deaf(), watched.overdue(), watched.lag(kinds.DEPLOYMENT)) == ((), frozenset(), 0)


def test_a_watch_that_owes_a_change_a_minute_later_is_deaf() -> None:
    watched, time = monitor()
    watched.delivered(kinds.DEPLOYMENT, deployment(4))
    watched.read(kinds.DEPLOYMENT, (deployment(5),))
    time.now = 61
    assert watched.overdue() == {"ai/qwen"}
    assert watched.deaf() == ()  # the object may have vanished: another read decides
    watched.read(kinds.DEPLOYMENT, (deployment(6),))
    assert watched.deaf() == ("deployments",)
    watched.delivered(kinds.DEPLOYMENT, deployment(6))
    assert watched.deaf() == ()


def test_a_collectors_children_are_owed_to_the_claims_key() -> None:
    watched, time = monitor()
    labels, annotations = {"epd.dev/collector": "c"}, {"epd.dev/claim": "ec"}
    metadata = {"name": "c", "namespace": "ai", "labels": labels, "annotations": annotations, "resourceVersion": "5"}
    watched.read(kinds.DEPLOYMENT, ({"metadata": metadata},))
    time.now = 61
    assert watched.overdue() == {"claim/ai/ec"}
    watched.forget("claim/ai/ec")
    watched.read(kinds.DEPLOYMENT, ({"metadata": metadata},))
    watched.delivered(kinds.DEPLOYMENT, {"metadata": metadata})
    assert watched.overdue() == frozenset()


def test_an_object_that_vanished_while_the_watch_was_down_is_no_debt() -> None:
    watched, time = monitor()
    watched.delivered(kinds.DEPLOYMENT, deployment(4))
    watched.read(kinds.DEPLOYMENT, (deployment(4), deployment(9)))
    time.now = 61
    watched.read(kinds.DEPLOYMENT, (deployment(4),))
    assert (watched.deaf(), watched.overdue()) == ((), frozenset())


def test_other_namespaces_other_kinds_and_what_is_not_watched() -> None:
    watched, time = monitor()
    watched.read(kinds.DEPLOYMENT, (deployment(5),))
    watched.delivered(kinds.DEPLOYMENT, deployment(9, namespace="other"))
    watched.delivered(kinds.SERVICE, deployment(9))
    assert watched.lag(kinds.DEPLOYMENT) == 0
    time.now = 1
    assert watched.lag(kinds.DEPLOYMENT) == 1
    watched.read(
        kinds.PERSISTENT_VOLUME_CLAIM, ({"metadata": {"name": "b", "namespace": "ai", "resourceVersion": "9"}},)
    )
    watched.read(kinds.EVENT, (deployment(9),))
    time.now = 99
    assert watched.overdue() == {"ai/qwen"}
    watched.forget("ai/qwen")
    assert watched.overdue() == frozenset()


def test_unfit_and_unready_say_why() -> None:
    time, running = Time(), 0.0
    probe = Health(WatchMonitor(clock=time), longest_running=lambda: running, clock=time)
    assert (probe.unfit(), probe.unready()) == ("", "epddeployments.epd.dev could not be listed yet")
    probe.listed = True
    assert probe.unready() == "watches are not open yet"
    probe.watching = True
    assert probe.unready() == ""
    running = 601.0
    assert probe.unfit() == "a reconcile has been running for 601 s"
    running = 0.0
    time.now = 61.0
    assert probe.unfit() == "the event loop last turned 61 s ago"
    probe.tick()
    assert probe.unfit() == ""


async def test_the_endpoints() -> None:
    probe = Health(WatchMonitor())
    ports = unused_port(), unused_port()
    servers = await health.serve(probe, health_port=ports[0], metrics_port=ports[1])
    async with AsyncClient() as client:
        alive = await client.get(f"http://127.0.0.1:{ports[0]}/healthz")
        assert (alive.status_code, alive.text) == (200, "ok")
        assert (await client.get(f"http://127.0.0.1:{ports[0]}/readyz")).status_code == 503
        text = (await client.get(f"http://127.0.0.1:{ports[1]}/metrics")).text
    for server in servers:
        await server.cleanup()
    for name in (
        "workqueue_depth",
        "controller_runtime_reconcile_total",
        "rest_client_requests_total",
        "epd_condition",
    ):
        assert f"# TYPE {name}" in text
