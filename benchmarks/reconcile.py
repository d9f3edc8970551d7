"""Reconcile on a real API server: time from apply to all children applied, and what a reconcile without work costs.

    python benchmarks/reconcile.py [--objects 20] [--rounds 200]

The first figure is one create and one reconcile, one object after the other, in this process: the watch and the queue
of the operator, and other objects that wait in it, are not in it.

The peer, measured in the same run with the same client: bare LISTs of the kinds that one reconcile lists. The limit of
a reconcile without work is their cost; the ratio says what our own part adds. Writes nothing but to its own namespace.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from apiserver.controller.objects import CHILDREN, SPEC
from apiserver.controller.operator import eventually
from apiserver.server import CRD_FILE, running
from epd.api import names
from epd.controller import kinds
from epd.controller.build import ThisBuild
from epd.controller.cluster import KubeCluster
from epd.controller.events import Recorder
from epd.controller.reconcile import Reconciler
from epd.controller.reports import Reports, client

NAMESPACE = "bench"
REVISIONS = 2


async def main(objects: int, rounds: int) -> None:
    cluster = await KubeCluster.connect()
    build, reports = ThisBuild(operator_image="epd-operator:bench"), Reports(client())
    reconciler = Reconciler(cluster, build, Recorder(cluster, instance="bench"), reports, {})
    keys = [f"{NAMESPACE}/qwen-{number}" for number in range(objects)]
    try:
        await _made(cluster, reconciler, f"{NAMESPACE}/warm-up")  # opens the connections
        made = [await _made(cluster, reconciler, key) for key in keys]
        await _made_ready_to_rest(reconciler, keys)
        idle = await _measured(rounds, keys, reconciler.reconcile)
        lists = await _measured(rounds, keys, lambda key: _lists(cluster, key))
    finally:
        await cluster.close()
    made_ms = sorted(1000 * seconds for seconds in made)
    print(f"{objects} objects of {len(CHILDREN)} children and {REVISIONS} revisions each, {rounds} rounds")
    print(f"{'':44}{'median':>10}{'p99':>10}")
    p99 = made_ms[min(len(made_ms) - 1, int(0.99 * len(made_ms)))]
    print(f"{'create and reconcile, all children applied, ms':44}{statistics.median(made_ms):>10.1f}{p99:>10.1f}")
    print(f"{'':44}{'wall ms':>10}{'CPU ms':>10}")
    print(f"{'reconcile without work':44}{idle[0]:>10.2f}{idle[1]:>10.2f}")
    print(f"{'limit: its get and lists alone':44}{lists[0]:>10.2f}{lists[1]:>10.2f}")
    print(f"{'ratio':44}{idle[0] / lists[0]:>10.2f}{idle[1] / lists[1]:>10.2f}")


async def _made(cluster: KubeCluster, reconciler: Reconciler, key: str) -> float:
    manifest: dict[str, Any] = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": key.split("/")[1], "namespace": NAMESPACE},
        "spec": copy.deepcopy(SPEC),
    }
    started = time.perf_counter()
    await cluster.create(manifest)
    await reconciler.reconcile(key)
    return time.perf_counter() - started


async def _made_ready_to_rest(reconciler: Reconciler, keys: list[str]) -> None:
    for key in keys * 2:
        await reconciler.reconcile(key)


async def _measured(rounds: int, keys: list[str], call: Callable[[str], Awaitable[object]]) -> tuple[float, float]:
    """Wall and CPU milliseconds of this process per call, one after the other."""
    wall, cpu = time.perf_counter(), time.process_time()
    for number in range(rounds):
        await call(keys[number % len(keys)])
    return (1000 * (time.perf_counter() - wall) / rounds, 1000 * (time.process_time() - cpu) / rounds)


async def _lists(cluster: KubeCluster, key: str) -> None:
    name = key.split("/")[1]
    await cluster.get(kinds.EPD, NAMESPACE, name)
    listed = (*kinds.CHILDREN, kinds.POD)
    labels = f"{names.LABEL_EPD}={name}"
    claims, *_ = await asyncio.gather(*(cluster.list(kind, NAMESPACE, labels=labels) for kind in listed))
    uid = claims[0]["metadata"]["uid"]  # Pending here, as nothing binds it: its Events are read too
    await cluster.list(kinds.EVENT, NAMESPACE, fields=f"involvedObject.uid={uid}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=200)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as state, running(Path(state)) as server:
        server.kubectl("apply", "--server-side", "-f", "-", stdin=CRD_FILE.read_text())
        eventually(lambda: server.kubectl("get", "epd", check=False).returncode == 0)
        server.kubectl("create", "namespace", NAMESPACE)
        os.environ["KUBECONFIG"] = str(server.kubeconfig)
        asyncio.run(main(args.objects, args.rounds))
