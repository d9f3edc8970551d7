from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from epd.controller import errors, kinds
from epd.controller.cluster import KubeCluster
from epd.controller.kinds import Kind, Manifest

Respond = Callable[[web.Request, Any], web.Response]
SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "qwen", "namespace": "ai", "uid": "u"}}


class FakeServer:
    """Records requests and answers as told."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Any, str]] = []
        self.respond: Respond = lambda _request, _body: web.json_response(SERVICE)

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        kind = request.headers.get("Content-Type", "")
        self.requests.append((request.method, request.path_qs, body, kind))
        return self.respond(request, body)


@pytest.fixture
async def server(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[FakeServer, KubeCluster]]:
    fake, app = FakeServer(), web.Application()
    app.router.add_route("*", "/{path:.*}", fake.handle)
    async with TestServer(app) as running:
        config = tmp_path / "config"
        config.write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
            f"clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{running.port}'}}}}]\n"
            "users: [{name: u, user: {token: secret}}]\n"
        )
        monkeypatch.setenv("KUBECONFIG", str(config))
        cluster = await KubeCluster.connect()
        yield fake, cluster
        await cluster.close()


async def test_requests(server: tuple[FakeServer, KubeCluster]) -> None:
    fake, cluster = server
    await cluster.get(kinds.DEPLOYMENT, "ai", "qwen")
    assert await cluster.apply(SERVICE, manager="m") == SERVICE
    await cluster.delete(SERVICE)
    await cluster.patch_status(SERVICE, {"a": 1})
    await cluster.create(SERVICE)
    await cluster.create(SERVICE, dry_run=True)
    await cluster.patch(SERVICE, {"count": 2})
    service = "/api/v1/namespaces/ai/services"
    background = {"propagationPolicy": "Background", "preconditions": {"uid": "u"}}
    assert fake.requests == [
        ("GET", "/apis/apps/v1/namespaces/ai/deployments/qwen", None, "application/json"),
        ("PATCH", f"{service}/qwen?fieldManager=m&force=true&fieldValidation=Strict", SERVICE,
         "application/apply-patch+yaml"),
        ("DELETE", f"{service}/qwen", background, "application/json"),
        ("PATCH", f"{service}/qwen/status", {"metadata": {"uid": "u"}, "status": {"a": 1}},
         "application/merge-patch+json"),
        ("POST", f"{service}?fieldManager=epd-operator", SERVICE, "application/json"),
        ("POST", f"{service}?fieldManager=epd-operator&dryRun=All", SERVICE, "application/json"),
        ("PATCH", f"{service}/qwen?fieldManager=epd-operator", {"count": 2}, "application/merge-patch+json"),
    ]  # fmt: skip


async def test_lists_name_their_kind_and_are_told_of(server: tuple[FakeServer, KubeCluster]) -> None:
    fake, cluster = server
    fake.respond = lambda _request, _body: web.json_response({"items": [{"metadata": {"name": "a"}}]})
    told: list[tuple[Kind, tuple[Manifest, ...]]] = []
    cluster._on_read = lambda kind, objects: told.append((kind, objects))
    found = await cluster.list(kinds.POD, "ai", labels="epd.dev/name=qwen", fields="spec.nodeName=n")
    assert found == ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}},)
    assert told == [(kinds.POD, found)]
    await cluster.list(kinds.EPD, "")
    assert [request[1] for request in fake.requests] == [
        "/api/v1/namespaces/ai/pods?labelSelector=epd.dev/name%3Dqwen&fieldSelector=spec.nodeName%3Dn",
        "/apis/epd.dev/v1alpha1/epddeployments",
    ]


@pytest.mark.parametrize(
    ("response", "kind", "words"),
    [
        (lambda: web.json_response({"message": "no"}, status=422), errors.Rejected, "GET pods: no"),
        (lambda: web.Response(text="slow down", status=429, headers={"Retry-After": "3"}), errors.Retryable,
         "GET pods: slow down"),
        (lambda: web.json_response({"message": "gone"}, status=404), errors.NotFound, "GET pods: gone"),
        (lambda: web.Response(text="<html>", status=200), errors.Retryable, "GET pods: the answer is not JSON"),
        (lambda: web.json_response([]), errors.Retryable, "GET pods: the answer is not an object"),
    ],
    ids=["422", "429", "404", "html", "list"],
)  # fmt: skip
async def test_answers_that_are_errors(
    server: tuple[FakeServer, KubeCluster], response: Any, kind: type[errors.ClusterError], words: str
) -> None:
    fake, cluster = server
    fake.respond = lambda _request, _body: response()
    with pytest.raises(errors.ClusterError) as error:
        await cluster.get(kinds.POD, "ai", "p")
    assert (type(error.value), str(error.value)) == (kind, words)
    if words.endswith("slow down"):
        assert isinstance(error.value, errors.Retryable)
        assert error.value.after == 3


async def test_a_lost_connection_is_retryable(server: tuple[FakeServer, KubeCluster]) -> None:
    fake, cluster = server

    def drop(request: web.Request, _body: Any) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    fake.respond = drop
    async with asyncio.timeout(10):
        with pytest.raises(errors.Retryable, match="GET pods: "):
            await cluster.get(kinds.POD, "ai", "p")
