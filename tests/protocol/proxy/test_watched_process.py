"""The real process, which finds its engines by watching pods: none, all gone, back, and an API server that is away."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from protocol.proxy import stubs
from protocol.proxy.apiservers import ApiServer
from protocol.proxy.processes import Running, running
from protocol.proxy.stubs import StubEngine, decoder, encoder

ERRORS = re.compile(r"epd_proxy_pod_watch_errors_total\{[^}]*\} (\S+)")


def pod(engine: StubEngine, *, ready: bool = True) -> dict[str, Any]:
    host, _, port = engine.address.removeprefix("http://").partition(":")
    return {
        "metadata": {"name": engine.name, "labels": {"llm-d.ai/role": engine.role, "epd.dev/pairing": "p"}},
        "spec": {"containers": [{"name": "engine", "ports": [{"name": "http", "containerPort": int(port)}]}]},
        "status": {"podIP": host, "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


@asynccontextmanager
async def api_server(server: ApiServer, port: int) -> AsyncIterator[int]:
    """Listens on `port`, or on a new one if that is 0; gone at the end, with all its connections."""
    app = web.Application()
    app.router.add_get("/api/v1/namespaces/ns/pods", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.05)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def kubeconfig(folder: Path, port: int) -> str:
    config = {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "test", "user": {"token": "t"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return str(path)


async def refusal(proxy: Running) -> tuple[int, str, str | None]:
    answer = await proxy.chat()
    return answer.status, (await answer.json())["error"]["code"], answer.headers.get("retry-after")


async def seen(proxy: Running, *names: str) -> None:
    """Wait until those engines are in rotation and no others are."""
    async with asyncio.timeout(30):
        while True:
            topology = await (await proxy.http.get(f"{proxy.admin}/topology")).json()
            if {m["name"] for m in topology["members"] if m["ready"]} == set(names):
                return
            await asyncio.sleep(0.02)


async def watch_errors(proxy: Running) -> float:
    page = await (await proxy.http.get(f"{proxy.admin}/metrics")).text()
    return sum(map(float, ERRORS.findall(page)))


async def test_engines_come_and_go_and_the_reason_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    e, pd, server = encoder(), decoder(), ApiServer()
    async with e.serve(), pd.serve(), api_server(server, 0) as port:
        monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, port))
        async with running("--namespace", "ns", "--epd", "demo") as proxy:
            # an empty list is a list
            await proxy.ready(200)
            assert await refusal(proxy) == (503, "no_ready_engine", "5")
            assert (await proxy.http.get(f"{proxy.data}/health")).status == 503
            for kind, object_, names in (
                ("ADDED", pod(pd), ["pd0"]),
                ("ADDED", pod(e), ["e0", "pd0"]),
                ("DELETED", pod(e), ["pd0"]),
                ("MODIFIED", pod(pd, ready=False), []),
                ("MODIFIED", pod(pd), ["pd0"]),
            ):
                server.events.put_nowait({"type": kind, "object": object_})
                await seen(proxy, *names)
                if "pd0" in names:
                    answer = await proxy.chat()
                    wanted = "encoded" if "e0" in names else "fallback"
                    assert (answer.status, answer.headers["x-epd-encode"]) == (200, wanted)
                else:
                    assert await refusal(proxy) == (503, "no_ready_engine", "5")


async def test_an_api_server_that_is_away_is_missed_by_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long it is away makes no difference: the list last known has no end, and pauses between tries are bounded."""
    e, pd, new = encoder(), decoder(), decoder("pd1")
    async with e.serve(), pd.serve(), new.serve():
        server = ApiServer({"e0": pod(e), "pd0": pod(pd)})
        async with api_server(server, 0) as port:
            monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, port))
            proxies = running("--namespace", "ns", "--epd", "demo")
            proxy = await proxies.__aenter__()
            await seen(proxy, "e0", "pd0")
        try:
            async with asyncio.timeout(30):
                while await watch_errors(proxy) < 3:
                    answer = await proxy.chat(stream=True)
                    assert (answer.status, answer.headers["x-epd-encode"]) == (200, "encoded")
                    assert (await answer.read()).endswith(stubs.DONE)
            assert (await proxy.http.get(f"{proxy.admin}/readyz")).status == 200
            server.pods = {"e0": pod(e), "pd1": pod(new)}
            async with api_server(server, port):
                await seen(proxy, "e0", "pd1")
                answer = await proxy.chat()
                assert (answer.status, answer.headers["x-epd-prefill"]) == (200, "pd1")
        finally:
            await proxies.__aexit__(None, None, None)
