"""Engines that speak as vLLM 0.32 does, without a model, over loopback sockets."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from epd.api.names import Role
from epd.proxy.pods import Member

CHAT = "/v1/chat/completions"
PNG = "data:image/png;base64,iVBORw0KGgo="
Behaviour = Callable[["StubEngine", web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


def event(document: object) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


ROLE_CHUNK = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
DONE = b"data: [DONE]\n\n"
ERROR_500 = {"error": {"message": "Internal server error", "type": "InternalServerError", "code": 500}}
IN_STREAM_ERROR = ERROR_500


def content_chunk(text: str) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})


@dataclass
class StubEngine:
    """One engine. `requests` has the bodies it got, `aborted` is set when a client broke off."""

    name: str
    role: Role
    behave: Behaviour
    pairing: str = "p1"
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    aborted: asyncio.Event = field(default_factory=asyncio.Event)
    connections: set[object] = field(default_factory=set)
    address: str = ""
    push_address: str = ""
    tls: ssl.SSLContext | None = None
    unix: Path | None = None
    """Path of the socket that it listens on, in place of TCP."""

    def member(self, *, ready: bool = True) -> Member:
        return Member(
            name=self.name,
            role=self.role,
            pairing=self.pairing,
            address=self.address,
            ready=ready,
            model_version="v1-tiny-0123456789ab",
            push_address=self.push_address,
        )

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.connections.add(request.transport)
        document = await request.json()
        self.requests.append(document)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.started.set()
        try:
            return await self.behave(self, request, document)
        except (asyncio.CancelledError, ConnectionError):
            self.aborted.set()
            raise

    async def models(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"object": "list", "data": [{"id": "tiny"}]})

    async def health(self, _: web.Request) -> web.StreamResponse:
        return web.Response()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[StubEngine]:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post(CHAT, self.chat)
        app.router.add_post("/v1/completions", self.chat)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/health", self.health)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        if self.unix is not None:
            await web.UnixSite(runner, self.unix).start()
            self.address = f"unix:{self.unix}"
        else:
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self.tls).start()
            host, port = runner.addresses[0][:2]
            self.address = f"http{'s' if self.tls else ''}://{host}:{port}"
        try:
            yield self
        finally:
            await runner.cleanup()


async def encode(engine: StubEngine, request: web.Request, document: dict[str, Any]) -> web.StreamResponse:
    """An encoder: empty content, and per identifier its places in the prompt."""
    found: dict[str, dict[str, Any]] = {}
    parts = [part for message in document["messages"] for part in message["content"]]
    for index, part in enumerate(parts):
        url = part.get("image_url", part.get("video_url", part.get("audio_url", {}))).get("url", "")
        key = part.get("uuid", f"content-of-{url}")
        found.setdefault(key, {"item_indices": [], "metadata": {}})["item_indices"].append(index)
    choice = {"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}
    return web.json_response({"choices": [choice], "usage": {"completion_tokens": 0}, "ec_transfer_params": found})


async def generate(engine: StubEngine, request: web.Request, document: dict[str, Any]) -> web.StreamResponse:
    """A prefill side: streams when asked to."""
    if not document.get("stream"):
        choice = {"index": 0, "message": {"role": "assistant", "content": f"red from {engine.name}"}}
        return web.json_response({"choices": [choice], "kv_transfer_params": {"remote_host": "10.0.0.9"}})
    return await stream(request, ROLE_CHUNK, content_chunk("re"), content_chunk("d"), DONE)


async def stream(request: web.Request, *chunks: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    for chunk in chunks:
        await response.write(chunk)
    await response.write_eof()
    return response


def status(code: int, body: dict[str, Any]) -> Behaviour:
    async def behave(engine: StubEngine, request: web.Request, document: dict[str, Any]) -> web.StreamResponse:
        return web.json_response(body, status=code)

    return behave


def streams(*chunks: bytes) -> Behaviour:
    async def behave(engine: StubEngine, request: web.Request, document: dict[str, Any]) -> web.StreamResponse:
        return await stream(request, *chunks)

    return behave


def dies_after(*chunks: bytes) -> Behaviour:
    """Breaks its connection after `chunks`; before the head without any."""

    async def behave(engine: StubEngine, request: web.Request, document: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        if chunks:
            await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        assert request.transport is not None
        request.transport.close()
        return response

    return behave


async def hangs(engine: StubEngine, request: web.Request, document: dict[str, Any]) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


def hangs_after(*chunks: bytes) -> Behaviour:
    async def behave(engine: StubEngine, request: web.Request, document: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        await asyncio.Event().wait()
        raise AssertionError

    return behave


def encoder(name: str = "e0", behave: Behaviour = encode, **fields: Any) -> StubEngine:
    return StubEngine(name=name, role=Role.ENCODE, behave=behave, **fields)


def decoder(name: str = "pd0", behave: Behaviour = generate, **fields: Any) -> StubEngine:
    return StubEngine(name=name, role=Role.PREFILL_DECODE, behave=behave, **fields)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what no Event announces, at most 10 s."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - counters and members have no Event to wait for
            await asyncio.sleep(0.002)


def image(url: str = PNG, **fields: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}, **fields}


def text(value: str = "What colour is this?") -> dict[str, Any]:
    return {"type": "text", "text": value}
