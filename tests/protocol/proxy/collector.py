"""A collector of traces: OTLP over HTTP, as the OpenTelemetry Collector takes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Sent
from opentelemetry.proto.trace.v1.trace_pb2 import Status


@dataclass(frozen=True)
class Span:
    name: str
    trace: str
    id: str
    parent: str
    kind: str
    failed: bool
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    begun: int
    ended: int


@dataclass
class Collector:
    """What has come. `resource` is of the last export."""

    endpoint: str
    spans: list[Span] = field(default_factory=list)
    resource: dict[str, Any] = field(default_factory=dict)

    async def take(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/x-protobuf"
        message = ExportTraceServiceRequest.FromString(await request.read())
        for group in message.resource_spans:
            self.resource = _values(group.resource.attributes)
            self.spans += [_span(sent) for scope in group.scope_spans for sent in scope.spans]
        return web.Response(content_type="application/x-protobuf")

    async def finished(self, name: str, count: int = 1) -> list[Span]:
        """Wait for as many spans of that name; all spans of their traces."""
        async with asyncio.timeout(10):
            while sum(span.name == name for span in self.spans) < count:  # noqa: ASYNC110 - there is no Event
                await asyncio.sleep(0.01)
        return sorted(self.spans, key=lambda span: span.begun)


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    app = web.Application()
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    collector = Collector("")
    app.router.add_post("/v1/traces", collector.take)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    collector.endpoint = f"http://{host}:{port}"
    try:
        yield collector
    finally:
        await runner.cleanup()


def _span(sent: Sent) -> Span:
    return Span(
        name=sent.name,
        trace=sent.trace_id.hex(),
        id=sent.span_id.hex(),
        parent=sent.parent_span_id.hex(),
        kind=Sent.SpanKind.Name(sent.kind).removeprefix("SPAN_KIND_"),
        failed=sent.status.code == Status.STATUS_CODE_ERROR,
        attributes=_values(sent.attributes),
        events=[(event.name, _values(event.attributes)) for event in sent.events],
        begun=sent.start_time_unix_nano,
        ended=sent.end_time_unix_nano,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in attributes}


def _value(value: Any) -> Any:
    which = value.WhichOneof("value")
    if which == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, which)
