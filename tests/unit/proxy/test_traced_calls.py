from __future__ import annotations

import asyncio

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from epd.api.names import Role
from epd.proxy.pods import Member, Members
from epd.proxy.traced_calls import TracedTransport, told_path
from epd.proxy.transport import Answer, Call, Cause, Transport, TransportError
from unit.proxy.engines import Collected, Scripted, document, streamed

PARENT = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x-request-id": "r1"}
ENGINE = Member(name="pd0", role=Role.PREFILL_DECODE, pairing="p", address="http://a", ready=True, model_version="v1")


class Once(Transport):
    """Answers each call the same way. `calls` has what was sent."""

    def __init__(self, answer: Scripted | BaseException) -> None:
        self.answer = answer
        self.calls: list[Call] = []

    async def send(self, call: Call) -> Answer:
        self.calls.append(call)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class Traced:
    def __init__(self, answer: Scripted | BaseException) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.below = Once(answer)
        members = Members()
        members.replace([ENGINE])
        self.transport = TracedTransport(self.below, members, provider.get_tracer("t"))

    async def send(self, address: str = "http://a", **headers: str) -> Answer:
        return await self.transport.send(Call(address=address, path="/v1/x?y=z", headers={**PARENT, **headers}))

    def spans(self) -> list[tuple[str, str | None, bool]]:
        """Name, error and whether it is marked as one, of those that ended."""
        return [_told(span) for span in self.exporter.get_finished_spans()]


def _told(span: ReadableSpan) -> tuple[str, str | None, bool]:
    error = (span.attributes or {}).get("error.type")
    return span.name, None if error is None else str(error), span.status.status_code is StatusCode.ERROR


async def test_the_engine_gets_the_calls_own_context() -> None:
    traced = Traced(document({}))
    answer = await traced.send(tracestate="v=1", authorization="Bearer k")
    assert await answer.read() == b"{}"
    (span,) = traced.exporter.get_finished_spans()
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
    headers = traced.below.calls[0].headers
    assert headers["traceparent"] == f"00-0af7651916cd43dd8448eb211c80319c-{span.context.span_id:016x}-01"
    assert (headers["tracestate"], headers["authorization"]) == ("v=1", "Bearer k")
    assert dict(span.attributes or {}) == {
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "url.full": "http://a/v1/x",
        "server.address": "pd0",
        "epd.role": "prefill-decode",
        "epd.pairing": "p",
        "epd.model_version": "v1",
        "epd.request_id": "r1",
    }


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/v1/responses", "/v1/responses"),
        ("/v1/responses/resp_0123?stream=true", "/v1/responses/REDACTED"),
        ("/v1/responses/resp_0123/cancel", "/v1/responses/REDACTED/cancel"),
        ("/v1/chat/completions?key=k", "/v1/chat/completions"),
    ],
)
def test_what_spans_tell_of_a_path(path: str, told: str) -> None:
    assert told_path(path) == told


async def test_the_proxys_own_questions_have_no_span() -> None:
    traced = Traced(document({}))
    await traced.transport.send(Call(address="http://a", path="/v1/models"))
    assert (traced.spans(), len(traced.below.calls)) == ([], 1)


async def test_engines_that_went_have_spans_too() -> None:
    traced = Traced(document({}))
    await (await traced.send("http://gone")).read()
    assert traced.spans() == [("engine", None, False)]


@pytest.mark.parametrize("cause", [Cause.REFUSED, Cause.TIMEOUT])
async def test_calls_that_fail(cause: Cause) -> None:
    traced = Traced(TransportError(cause, "x"))
    with pytest.raises(TransportError):
        await traced.send()
    assert traced.spans() == [("prefill-decode", str(cause), True)]


async def test_calls_that_are_cancelled_are_broken_off_and_no_error() -> None:
    traced = Traced(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await traced.send()
    assert traced.spans() == [("prefill-decode", None, False)]


async def test_answers_that_are_errors_or_break_off() -> None:
    sick = Traced(document({}, status=503))
    await (await sick.send()).read()
    assert sick.spans() == [("prefill-decode", "503", True)]
    broken = Traced(Scripted(chunks=[b"{", TransportError(Cause.DISCONNECTED, "x")]))
    with pytest.raises(TransportError):
        await (await broken.send()).read()
    assert broken.spans() == [("prefill-decode", "disconnected", True)]


async def test_a_stream_that_is_relayed_ends_its_span_with_its_end() -> None:
    traced = Traced(streamed(b"a", None))
    answer = await traced.send()
    body, over = bytearray(), asyncio.get_running_loop().create_future()
    answer.relay(Collected(body, over))
    assert (bytes(body), traced.spans()) == (b"a", [])
    scripted = traced.below.answer
    assert isinstance(scripted, Scripted)
    answer.pause()
    assert scripted.paused
    scripted.chunks = [b"b"]
    answer.resume()
    assert (bytes(body), over.done(), traced.spans()) == (b"ab", True, [("prefill-decode", None, False)])
    answer.close()
    assert (len(traced.spans()), scripted.closed) == (1, 1)


@pytest.mark.parametrize("fault", [None, TransportError(Cause.DISCONNECTED, "x")], ids=["ends", "breaks off"])
async def test_a_span_ends_once_however_many_sinks_hear_of_the_end(
    fault: TransportError | None, caplog: pytest.LogCaptureFixture
) -> None:
    traced = Traced(Scripted(chunks=[] if fault is None else [fault]))
    answer = await traced.send()
    for _ in range(2):
        over = asyncio.get_running_loop().create_future()
        answer.relay(Collected(bytearray(), over))
        assert over.exception() is fault
    assert (len(traced.spans()), caplog.messages) == (1, [])


async def test_a_stream_that_is_left_is_broken_off() -> None:
    traced = Traced(streamed(b"a", None))
    (await traced.send()).close()
    (span,) = traced.exporter.get_finished_spans()
    assert (span.attributes or {})["epd.broken_off"] is True
