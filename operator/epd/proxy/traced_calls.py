"""Spans of calls to engines: a transport over another one, where requests are traced.

Reads the parent from a call's headers and puts its own span in its place, so that engines that trace (vLLM's
`--otlp-traces-endpoint`) go on from there. Changes nothing else of calls and answers.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from epd.proxy.pods import Member, Members
from epd.proxy.transport import Answer, Call, Sink, Transport, TransportError

PROPAGATOR: Final = TraceContextTextMapPropagator()
_STORED: Final = re.compile(r"(?<=^/v1/responses/)[^/]+")


class TracedTransport(Transport):
    """Sends calls over `transport`, each in a span of the engine's role."""

    def __init__(self, transport: Transport, members: Members, tracer: Tracer) -> None:
        self._transport = transport
        self._members = members
        self._tracer = tracer
        self._by_address: dict[str, Member] = {}
        self._version = -1

    async def send(self, call: Call) -> Answer:
        """Send and wait for the head of the answer. Raises TransportError."""
        if "traceparent" not in call.headers:
            # the proxy's own question
            return await self._transport.send(call)
        member = self._at(call.address)
        context = PROPAGATOR.extract(call.headers, Context())
        name = str(member.role) if member is not None else "engine"
        span = self._tracer.start_span(name, context, SpanKind.CLIENT, _of_call(call, member))
        headers = dict(call.headers)
        inject(span, headers)
        try:
            answer = await self._transport.send(replace(call, headers=headers))
        except TransportError as error:
            _fail(span, str(error.cause))
            raise
        except BaseException:
            _leave(span)
            raise
        span.set_attribute("http.response.status_code", answer.status)
        if answer.status >= 400:
            span.set_attribute("error.type", str(answer.status))
            span.set_status(Status(StatusCode.ERROR))
        return TracedAnswer(answer, span)

    def _at(self, address: str) -> Member | None:
        if self._version != self._members.version:
            self._version = self._members.version
            self._by_address = {member.address: member for member in self._members.all()}
        return self._by_address.get(address)


class TracedAnswer(Answer):
    """An answer whose span ends with it."""

    def __init__(self, answer: Answer, span: Span) -> None:
        self._answer = answer
        self._span = span
        self.status = answer.status
        self.headers = answer.headers

    async def read(self) -> bytes:
        """Read the whole body. Raises TransportError."""
        try:
            body = await self._answer.read()
        except TransportError as error:
            _fail(self._span, str(error.cause))
            raise
        self._span.end()
        return body

    def relay(self, sink: Sink) -> None:
        """Push the body into `sink`."""
        self._answer.relay(_TracedSink(sink, self._span))

    def pause(self) -> None:
        """Read no more for now."""
        self._answer.pause()

    def resume(self) -> None:
        """Read on."""
        self._answer.resume()

    def close(self) -> None:
        """Break the connection unless the answer is complete."""
        _leave(self._span)
        self._answer.close()


class _TracedSink:
    def __init__(self, sink: Sink, span: Span) -> None:
        self._sink = sink
        self._span = span
        self.write = sink.write

    def end(self) -> None:
        _end(self._span)
        self._sink.end()

    def fail(self, error: TransportError) -> None:
        _fail(self._span, str(error.cause))
        self._sink.fail(error)


def inject(span: Span, headers: dict[str, str]) -> None:
    """Make `span` the parent of what is sent with `headers`."""
    # it goes with the other one, which is replaced
    headers.pop("tracestate", None)
    PROPAGATOR.inject(headers, set_span_in_context(span, Context()))


def told_path(path: str) -> str:
    """A path as spans have it: no query, and no id of a stored response, which whoever has it may read and delete.

    In its place stands the word that OpenTelemetry's conventions for URLs have for it.
    """
    return _STORED.sub("REDACTED", path.partition("?")[0])


def _of_call(call: Call, member: Member | None) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        "http.request.method": call.method,
        "url.full": call.address + told_path(call.path),
        "epd.request_id": call.headers.get("x-request-id", ""),
    }
    if member is not None:
        attributes |= {
            "server.address": member.name,
            "epd.role": str(member.role),
            "epd.pairing": member.pairing,
            "epd.model_version": member.model_version,
        }
    return attributes


def _end(span: Span) -> None:
    """End it if it has not ended: a sink that takes over hears the end once more."""
    if span.is_recording():
        span.end()


def _fail(span: Span, cause: str) -> None:
    if span.is_recording():
        span.set_attribute("error.type", cause)
        span.set_status(Status(StatusCode.ERROR))
        span.end()


def _leave(span: Span) -> None:
    """End it if it has not ended: nobody wants the rest."""
    if span.is_recording():
        span.set_attribute("epd.broken_off", True)
        span.end()
