"""Engines that serve every dialect, and keep the responses that they made."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from epd.api.names import Role
from protocol.proxy.stubs import StubEngine, generate, stream


@dataclass
class Engine(StubEngine):
    """An engine that has every route, and notes which are asked for."""

    paths: list[str] = field(default_factory=list)

    async def any(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path_qs)
        return await (self.chat(request) if request.can_read_body else self.behave(self, request, {}))

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[StubEngine]:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self.any)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        self.address = f"http://{host}:{port}"
        try:
            yield self
        finally:
            await runner.cleanup()


async def encode(engine: StubEngine, request: web.Request, document: dict[str, Any]) -> web.StreamResponse:
    """An encoder of one picture, which it names by its content if it is told no name."""
    [part] = document["messages"][0]["content"]
    return web.json_response({"ec_transfer_params": {part.get("uuid", "c" * 64): {"item_indices": [0]}}})


def engines() -> tuple[Engine, Engine]:
    return Engine("e0", Role.ENCODE, encode), Engine("pd0", Role.PREFILL_DECODE, generate)


async def store(engine: StubEngine, request: web.Request, document: dict[str, Any]) -> web.StreamResponse:
    """An engine that names a response as it is told, and knows its own."""
    if document.get("stream"):
        event = {"type": "response.completed", "response": {"id": document["request_id"], "kv_transfer_params": {}}}
        return await stream(request, f"event: response.completed\ndata: {json.dumps(event)}\n\n".encode())
    return web.json_response({"id": document.get("request_id"), "by": engine.name, "ec_transfer_params": None})


def stores() -> list[Engine]:
    return [Engine(f"pd{n}", Role.PREFILL_DECODE, store) for n in range(3)]
