"""Ten thousand pods that come, change and go before the real process: it answers all along, and its table is right."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from protocol.proxy import stubs
from protocol.proxy.processes import Running, running
from protocol.proxy.stubs import StubEngine, decoder, encoder

PODS = 10_000
EVENTS = 5_000
BURST = 100
"""Events that an API server writes at a time."""
BULK = json.dumps([{"manager": "kubelet", "fieldsV1": {f"f:{n}": {f"f:{m}": {} for m in range(8)} for n in range(40)}}])
"""What of a pod the proxy has no use for: managedFields are the most of its 4 to 8 KB of JSON."""
CPU_SECONDS_PER_EVENT = 1e-3
"""Measured: a tenth of that."""
GROWTH_BYTES = 100 << 20
"""Measured: a third of that. All pods as parsed JSON take three times as much."""


def pod(name: str, *, role: str, pairing: str, ready: bool, address: str = "10.0.0.1:8000") -> dict[str, Any]:
    host, _, port = address.partition(":")
    return {
        "metadata": {
            "name": name,
            "labels": {"llm-d.ai/role": role, "epd.dev/pairing": pairing},
        },
        "spec": {"containers": [{"name": "engine", "ports": [{"name": "http", "containerPort": int(port)}]}]},
        "status": {"podIP": host, "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def written(pod: dict[str, Any]) -> str:
    """The pod as JSON, with what API servers tell beside."""
    return json.dumps(pod).replace('"metadata": {', f'"metadata": {{"managedFields": {BULK}, ', 1)


def event(kind: str, pod: dict[str, Any]) -> bytes:
    return f'{{"type": "{kind}", "object": {written(pod)}}}\n'.encode()


def engine_pod(engine: StubEngine) -> dict[str, Any]:
    address = engine.address.removeprefix("http://")
    return pod(engine.name, role=engine.role, pairing="real", ready=True, address=address)


@dataclass
class Churning:
    """An API server that lists in pages, as many as are asked for, and streams what it is told to."""

    pods: dict[str, dict[str, Any]]
    events: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(1))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                await response.write(await self.events.get())
        names = sorted(self.pods)
        start = int(request.query.get("continue", 0))
        end = start + int(request.query.get("limit", len(names)))
        metadata = {"resourceVersion": "7", **({"continue": str(end)} if end < len(names) else {})}
        items = ",".join(written(self.pods[name]) for name in names[start:end])
        return web.Response(text=f'{{"metadata": {json.dumps(metadata)}, "items": [{items}]}}')

    @asynccontextmanager
    async def serve(self, folder: Path) -> AsyncIterator[Path]:
        """Serve; the path of a kubeconfig."""
        app = web.Application()
        app.router.add_get("/api/v1/namespaces/ns/pods", self.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        config = {
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": {"server": f"http://{host}:{port}"}}],
            "users": [{"name": "test", "user": {"token": "t"}}],
        }
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        try:
            yield path
        finally:
            await runner.cleanup()


def change(world: dict[str, dict[str, Any]], rng: random.Random, number: int) -> bytes:
    """One event, done to `world` too. Prefill sides of strangers are never ready, since nobody listens there."""
    kind = rng.choice(("ADDED", "MODIFIED", "MODIFIED", "DELETED"))
    strangers = [] if kind == "ADDED" else [f"stranger-{rng.randrange(PODS)}"]
    name = strangers[0] if strangers and strangers[0] in world else f"newcomer-{number}"
    if kind == "DELETED" and name in world:
        return event(kind, world.pop(name))
    role = rng.choice(("encode", "prefill-decode"))
    ready = role == "encode" and rng.random() < 0.7
    world[name], known = pod(name, role=role, pairing=f"p{rng.randrange(50)}", ready=ready), name in world
    return event("MODIFIED" if known else "ADDED", world[name])


def used(pid: int) -> tuple[float, int]:
    """Seconds of CPU time of a process, and the most bytes of memory that it ever had (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds, int(status["VmHWM"].split()[0]) << 10


def table(world: Mapping[str, dict[str, Any]]) -> dict[str, tuple[str, str, bool]]:
    """What /topology has to say of `world`."""
    return {
        name: (
            pod["metadata"]["labels"]["llm-d.ai/role"],
            pod["metadata"]["labels"]["epd.dev/pairing"],
            pod["status"]["conditions"][0]["status"] == "True",
        )
        for name, pod in world.items()
    }


async def shown(proxy: Running) -> dict[str, tuple[str, str, bool]]:
    topology = await (await proxy.http.get(f"{proxy.admin}/topology")).json()
    return {m["name"]: (m["role"], m["pairing"], m["ready"]) for m in topology["members"]}


async def test_ten_thousand_pods_churn_while_requests_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(5)
    e, pd = encoder(), decoder()
    async with e.serve(), pd.serve():
        world = {engine.name: engine_pod(engine) for engine in (e, pd)}
        for number in range(PODS - len(world)):
            name, role = f"stranger-{number}", ("encode", "prefill-decode")[number % 2]
            world[name] = pod(name, role=role, pairing=f"p{number % 50}", ready=role == "encode")
        server = Churning(dict(world))
        async with server.serve(tmp_path) as kubeconfig:
            monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
            async with running("--namespace", "ns", "--epd", "demo") as proxy:
                _, at_start = used(proxy.process.pid)
                await proxy.ready(200)
                assert await shown(proxy) == table(world)
                before, _ = used(proxy.process.pid)
                over, answers = asyncio.Event(), 0

                async def client() -> None:
                    nonlocal answers
                    while not over.is_set():
                        answer = await proxy.chat(stream=True)
                        assert (answer.status, answer.headers["x-epd-encoders"]) == (200, e.name)
                        assert answer.headers["x-epd-prefill"] == pd.name
                        assert (await answer.read()).endswith(stubs.DONE)
                        answers += 1

                asking = [asyncio.create_task(client()) for _ in range(2)]
                for start in range(0, EVENTS, BURST):
                    await server.events.put(b"".join(change(world, rng, n) for n in range(start, start + BURST)))
                last = pod("last", role="encode", pairing="last", ready=True)
                world["last"] = last
                await server.events.put(event("ADDED", last))
                while "last" not in (table_shown := await shown(proxy)):  # noqa: ASYNC110 - another process knows
                    await asyncio.sleep(0.1)
                over.set()
                await asyncio.gather(*asking)
                assert table_shown == table(world)
                spent, memory = used(proxy.process.pid)
                assert answers > 0
                assert (spent - before) / EVENTS < CPU_SECONDS_PER_EVENT
                assert memory - at_start < GROWTH_BYTES
