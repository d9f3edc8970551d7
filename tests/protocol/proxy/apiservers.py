"""A kube-apiserver's pods, over loopback sockets."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


def pod(name: str, *, ready: bool = True) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"llm-d.ai/role": "encode", "epd.dev/pairing": "p"}},
        "spec": {"containers": [{"name": "engine", "ports": [{"name": "http", "containerPort": 8000}]}]},
        "status": {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


@dataclass
class ApiServer:
    """Lists `pods`, in pages where that is asked for; sends `events` to whoever watches; None ends a watch."""

    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: asyncio.Queue[dict[str, Any] | None] = field(default_factory=asyncio.Queue)
    queries: list[dict[str, str]] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    failing: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.queries.append(dict(request.query))
        self.authorizations.append(request.headers.get("authorization"))
        if self.failing:
            return web.json_response({"message": "etcd is away"}, status=self.failing)
        if "watch" not in request.query:
            items = list(self.pods.values())
            start = int(request.query.get("continue", 0))
            end = start + int(request.query.get("limit", len(items)))
            metadata = {"resourceVersion": "7", **({"continue": str(end)} if end < len(items) else {})}
            return web.json_response({"metadata": metadata, "items": items[start:end]})
        response = web.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)
        while (event := await self.events.get()) is not None:
            await response.write(json.dumps(event).encode() + b"\n")
        return response

    @asynccontextmanager
    async def serve(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_get("/api/v1/namespaces/ns/pods", self.handle)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        host, port = runner.addresses[0][:2]
        try:
            yield f"{'https' if tls else 'http'}://{host}:{port}"
        finally:
            await runner.cleanup()
