"""Engines that speak as vLLM 0.32 does, without a model, and a proxy in front of them over loopback sockets."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from epd.api.names import Role
from epd.proxy.admin import AdminPort
from epd.proxy.api_keys import ApiKeys
from epd.proxy.bodies import Bodies
from epd.proxy.exchange import Exchange
from epd.proxy.isolation import Isolation
from epd.proxy.listening import Listener
from epd.proxy.metrics import Metrics
from epd.proxy.pods import Member, Members
from epd.proxy.pool import HttpTransport
from epd.proxy.routing import InFlight
from epd.proxy.server import DataPort
from epd.proxy.settings import Settings
from epd.proxy.tenancy import Tenancy
from epd.proxy.tenant_series import TenantSeries

CHAT = "/v1/chat/completions"
PNG = "data:image/png;base64,iVBORw0KGgo="
Behaviour = Callable[["StubEngine", web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


def event(document: object) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


ROLE_CHUNK = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
DONE = b"data: [DONE]\n\n"
IN_STREAM_ERROR = {"error": {"message": "Internal server error", "type": "InternalServerError", "code": 500}}


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


@dataclass
class Proxy:
    """A running proxy; `http` sends to its data port, `admin` to its admin port."""

    members: Members
    load: InFlight
    metrics: Metrics
    data_port: DataPort
    http: aiohttp.ClientSession
    admin: aiohttp.ClientSession
    listener: Listener
    transport: HttpTransport

    async def chat(self, *content: Any, **fields: Any) -> aiohttp.ClientResponse:
        headers = fields.pop("headers", {})
        document = {"model": "tiny", "messages": [{"role": "user", "content": list(content)}], **fields}
        return await self.http.post(CHAT, json=document, headers=headers)

    def run_out_of_time(self) -> None:
        """Let the deadline of every request that is being answered be now, however fast the machine is."""
        for connection in self.listener._connections.all():
            if connection._turn is not None:
                connection._look(connection._turn.deadline)

    def value(self, name: str, **labels: str) -> float:
        labels = {"namespace": "ns", "epd": "demo", **labels}
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what no Event announces, at most 10 s."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - counters and members have no Event to wait for
            await asyncio.sleep(0.002)


def image(url: str = PNG, **fields: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}, **fields}


def text(value: str = "What colour is this?") -> dict[str, Any]:
    return {"type": "text", "text": value}


def settings(**fields: Any) -> Settings:
    roles = fields.pop("roles", frozenset({Role.ENCODE, Role.PREFILL_DECODE}))
    return Settings(host="127.0.0.1", port=0, admin_port=0, roles=roles, namespace="ns", epd="demo", **fields)


async def _serve(stack: AsyncExitStack, app: web.Application) -> aiohttp.ClientSession:
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, auto_decompress=False)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    return await stack.enter_async_context(aiohttp.ClientSession(f"http://{host}:{port}"))


@asynccontextmanager
async def proxy(*engines: StubEngine, room: int | None = None, **fields: Any) -> AsyncIterator[Proxy]:
    """Serve `engines` and a proxy in front of them; `fields` are those of Settings."""
    configured = settings(**fields)
    async with AsyncExitStack() as stack:
        for engine in engines:
            await stack.enter_async_context(engine.serve())
        members, load, metrics = Members(), InFlight(), Metrics(namespace="ns", epd="demo")
        members.replace(engine.member() for engine in engines)
        transport = await stack.enter_async_context(HttpTransport())
        exchange = Exchange(
            encodes=configured.encodes,
            rewrites=configured.rewrite,
            policy=configured.policy,
            limits=configured.limits,
            transport=transport,
            members=members,
            load=load,
            metrics=metrics,
            connector=configured.connector,
            hint_seconds=configured.hint_seconds,
            split=configured.split,
        )
        bodies = Bodies(room=room)
        tenancy = None
        if configured.api_keys is not None:
            series = TenantSeries(metrics, namespace="ns", epd="demo")
            tenancy = Tenancy(
                keys=ApiKeys(configured.api_keys, on_read=series.read),
                isolation=Isolation(configured.tenant_isolation, configured.media),
                most=configured.limits.max_in_flight_per_tenant,
                series=series,
            )
        data_port = DataPort(settings=configured, exchange=exchange, metrics=metrics, bodies=bodies, tenancy=tenancy)
        admin_port = AdminPort(
            settings=configured, members=members, load=load, metrics=metrics, exchange=exchange, data_port=data_port
        )
        listener = Listener(data_port)
        stack.push_async_callback(listener.close, 0.1)
        await listener.listen("127.0.0.1", 0)
        http = await stack.enter_async_context(aiohttp.ClientSession(f"http://{listener.addresses[0]}"))
        admin = await _serve(stack, admin_port.application())
        yield Proxy(members, load, metrics, data_port, http, admin, listener, transport)
