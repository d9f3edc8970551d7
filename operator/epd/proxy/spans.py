"""Spans of requests, by OpenTelemetry, and what sends them: client, encoders, prefill and decode in one trace.

Each request has a span under the client's, if that sent a `traceparent`; each call to an engine has one under the
request's (`traced_calls.py`), and the engine gets that one's `traceparent`; a wait for room at an engine has one too.
Attributes are named as OpenTelemetry's semantic conventions name those of HTTP and of generative AI; our own begin with
`epd.`. Imported only where traces are sent. Exporting is a thread's of its own, with a bounded queue; no request waits
for it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import orjson
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, format_trace_id, set_span_in_context
from opentelemetry.util.types import AttributeValue

from epd import __version__
from epd.proxy.parsed import ParsedRequest
from epd.proxy.pods import Members
from epd.proxy.record import BROKEN, FAILED, Record, Wait
from epd.proxy.traced_calls import PROPAGATOR, TracedTransport, inject, told_path
from epd.proxy.transport import Transport

log = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 3.0
"""How long the end of the process waits for the last spans: a collector that answers takes milliseconds."""
READ_BYTES: Final = 64 << 10
"""Bodies of text up to this size are read once more for the name of their model, in 0.2 ms at most."""
_OPERATIONS: Final = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
}
"""`gen_ai.operation.name` of routes, where the conventions have one."""
_OUR_NAMES: Final = {
    "x-epd-encode": "epd.encode",
    "x-epd-prefill": "epd.prefill",
    "x-epd-decode": "epd.decode",
    "x-epd-model-version": "epd.model_version",
}
_OUR_LISTS: Final = {"x-epd-encoders": "epd.encoders", "x-epd-items": "epd.items"}


class Tracing:
    """Makes spans. One per process."""

    def __init__(self, provider: TracerProvider, *, scheme: str = "http") -> None:
        self._provider = provider
        self._scheme = scheme
        self._tracer = provider.get_tracer("epd.proxy", __version__)

    def begin(self, method: str, route: str, path: str, headers: dict[str, str]) -> RequestSpan:
        """A request for `path` has come. Its span's context takes the place of the client's in `headers`."""
        attributes: dict[str, AttributeValue] = {
            "http.request.method": method,
            "http.route": route,
            "url.path": told_path(path),
            "url.scheme": self._scheme,
        }
        if route in _OPERATIONS:
            attributes |= {"gen_ai.operation.name": _OPERATIONS[route], "gen_ai.provider.name": "vllm"}
        client = PROPAGATOR.extract(headers, Context())
        span = self._tracer.start_span(f"{method} {route}", client, SpanKind.SERVER, attributes)
        inject(span, headers)
        return RequestSpan(span, self._tracer)

    def over(self, transport: Transport, members: Members) -> Transport:
        """The transport, with a span for each call that belongs to a request's."""
        return TracedTransport(transport, members, self._tracer)

    async def close(self) -> None:
        """Send what is left, within CLOSE_SECONDS."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            # by then nobody may wait any more
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(done.set)

        # no executor: the end of the process would wait for its threads
        threading.Thread(target=shut_down, name="traces", daemon=True).start()
        with suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), CLOSE_SECONDS)


class RequestSpan:
    """One request's span."""

    __slots__ = ("_span", "_tracer", "recording")

    def __init__(self, span: Span, tracer: Tracer) -> None:
        self._span = span
        self._tracer = tracer
        self.recording = span.is_recording()
        """Whether it is sampled."""

    @property
    def trace_id(self) -> str:
        """The trace's id, in hex."""
        return format_trace_id(self._span.get_span_context().trace_id)

    def asks(self, request: ParsedRequest) -> str | None:
        """The model that a request asks for, if it is recorded and that takes no time to find."""
        if not self.recording:
            return None
        if request.items:
            return request.model or None
        if len(request.pieces) > 1 or len(request.pieces[0]) > READ_BYTES:
            return None
        try:
            document = orjson.loads(request.pieces[0])
        except ValueError:
            return None
        model = document.get("model") if isinstance(document, dict) else None
        return model if isinstance(model, str) else None

    def end(self, record: Record) -> None:
        """The request is over."""
        span = self._span
        if self.recording:
            for retry in record.trail.retries:
                cause = {"epd.role": str(retry.role), "error.type": str(retry.cause)}
                span.add_event("retry", cause, retry.at)
            for wait in record.trail.waits:
                self._tell(wait)
            span.set_attributes(_attributes(record))
            if record.outcome in (FAILED, BROKEN):
                span.set_status(Status(StatusCode.ERROR))
        span.end()

    def _tell(self, wait: Wait) -> None:
        """Make a span of what is over."""
        under = set_span_in_context(self._span, Context())
        span = self._tracer.start_span("queue", under, SpanKind.INTERNAL, start_time=wait.begun)
        if wait.code:
            span.set_attribute("error.type", wait.code)
            span.set_status(Status(StatusCode.ERROR))
        span.end(wait.ended)


class TellingExporter(SpanExporter):
    """Exports as `exporter` does, and says in the log when that begins to fail and when it succeeds again.

    OpenTelemetry's own says it again with every batch, several times.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans."""
        result = self._exporter.export(spans)
        failing = result is not SpanExportResult.SUCCESS
        if failing and not self._failing:
            log.warning("traces can't be sent and are dropped, until their collector takes them")
        elif self._failing and not failing:
            log.info("traces are sent again")
        self._failing = failing
        return result

    def shutdown(self) -> None:
        """Send no more."""
        self._exporter.shutdown()


def make_provider(environ: Mapping[str, str], *, namespace: str, epd: str) -> TracerProvider:
    """Make what spans are sent by. Raises ValueError.

    OpenTelemetry reads endpoint, sampler, headers and limits from the environment by itself.
    """
    logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
    ours: dict[str, AttributeValue] = {"service.version": __version__, "service.instance.id": socket.gethostname()}
    if namespace:
        ours |= {"k8s.namespace.name": namespace, "epd.name": epd}
    if not environ.get("OTEL_SERVICE_NAME") and "service.name=" not in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        ours["service.name"] = "epd-proxy"
    provider = TracerProvider(resource=Resource.create(ours), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(TellingExporter(OTLPSpanExporter())))
    return provider


def _attributes(record: Record) -> dict[str, AttributeValue]:
    trail, headers = record.trail, record.headers
    said: dict[str, AttributeValue | None] = {
        "epd.request_id": record.request_id,
        "epd.outcome": record.outcome,
        "epd.tenant": record.tenant or None,
        "epd.retries": [f"{retry.role}:{retry.cause}" for retry in trail.retries] or None,
        "epd.time_to_first_token": trail.first_token,
        "gen_ai.request.model": trail.model,
        "http.response.status_code": record.status,
        "http.request.body.size": record.received,
        "http.response.body.size": record.sent,
    }
    if record.outcome in (FAILED, BROKEN):
        said["error.type"] = str(record.code or record.status) if record.outcome == FAILED else BROKEN
    said |= {ours: headers.get(name) for name, ours in _OUR_NAMES.items()}
    said |= {ours: headers[name].split(",") for name, ours in _OUR_LISTS.items() if name in headers}
    return {name: value for name, value in said.items() if value is not None}
