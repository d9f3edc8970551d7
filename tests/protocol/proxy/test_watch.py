"""The pod watch against an API server of loopback sockets, through `kubernetes.aio` and a kubeconfig."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from epd.api.names import Role
from epd.proxy.pods import Members
from epd.proxy.watch import follow, kubernetes_pods
from protocol.proxy.stubs import until

GONE = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}


def pod(name: str, *, ready: bool = True) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"llm-d.ai/role": "encode", "epd.dev/pairing": "p"}},
        "spec": {"containers": [{"name": "engine", "ports": [{"name": "http", "containerPort": 8000}]}]},
        "status": {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


@dataclass
class ApiServer:
    """Lists `pods`; sends `events` to whoever watches; None ends a watch."""

    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: asyncio.Queue[dict[str, Any] | None] = field(default_factory=asyncio.Queue)
    queries: list[dict[str, str]] = field(default_factory=list)
    failing: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.queries.append(dict(request.query))
        if self.failing:
            return web.json_response({"message": "etcd is away"}, status=self.failing)
        if "watch" not in request.query:
            items = list(self.pods.values())
            return web.json_response({"metadata": {"resourceVersion": "7"}, "items": items})
        response = web.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)
        while (event := await self.events.get()) is not None:
            await response.write(json.dumps(event).encode() + b"\n")
        return response


@dataclass
class Following:
    server: ApiServer
    members: Members
    errors: list[None]

    def names(self) -> list[str]:
        return [member.name for member in self.members.ready(Role.ENCODE)]


@pytest.fixture
async def following(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Following]:
    server = ApiServer({"a": pod("a"), "b": pod("b")})
    async with _served(server) as url:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": {"server": url}}],
            "users": [{"name": "test", "user": {"token": "t"}}],
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        source, close = await kubernetes_pods(namespace="ns", epd="demo")
        members, errors = Members(), []

        async def soon(_: float) -> None:
            await asyncio.sleep(0.005)

        task = asyncio.create_task(follow(source, members, on_error=lambda: errors.append(None), sleep=soon))
        yield Following(server, members, errors)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await close()


@asynccontextmanager
async def _served(server: ApiServer) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/api/v1/namespaces/ns/pods", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def test_it_lists_then_watches_from_there(following: Following) -> None:
    await until(lambda: len(following.server.queries) == 2)
    assert following.names() == ["a", "b"]
    listing, watching = following.server.queries
    assert listing == {"labelSelector": "epd.dev/name=demo,llm-d.ai/role"}
    assert watching == {**listing, "watch": "true", "resourceVersion": "7", "timeoutSeconds": "120"}


async def test_events_move_members(following: Following) -> None:
    deleting = pod("b")
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    deleting["metadata"]["annotations"] = {"large": "x" * 300_000}
    for kind, changed, names in (
        ("ADDED", pod("c"), ["a", "b", "c"]),
        ("MODIFIED", pod("a", ready=False), ["b", "c"]),
        ("MODIFIED", deleting, ["c"]),
        ("DELETED", pod("c"), []),
    ):
        following.server.events.put_nowait({"type": kind, "object": changed})
        await until(lambda names=names: following.names() == names)
    assert len(following.server.queries) == 2


async def test_a_pod_that_vanished_unseen_leaves_after_410(following: Following) -> None:
    await until(lambda: following.names() == ["a", "b"])
    del following.server.pods["a"]
    following.server.events.put_nowait(GONE)
    await until(lambda: following.names() == ["b"])
    assert following.errors == [None]


async def test_a_watch_that_ends_is_followed_by_a_list(following: Following) -> None:
    await until(lambda: following.names() == ["a", "b"])
    del following.server.pods["b"]
    following.server.events.put_nowait(None)
    await until(lambda: following.names() == ["a"])
    assert following.errors == []


async def test_the_last_known_members_stay_while_the_api_server_is_away(following: Following) -> None:
    await until(lambda: following.names() == ["a", "b"])
    following.server.failing = 500
    following.server.events.put_nowait(None)
    await until(lambda: len(following.errors) >= 3)
    assert following.names() == ["a", "b"]
    assert following.members.synced
    del following.server.pods["a"]
    following.server.failing = 0
    await until(lambda: following.names() == ["b"])
