from __future__ import annotations

import logging
from collections.abc import Sequence

import orjson
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON

from epd.proxy.parsed import ParsedRequest
from epd.proxy.spans import READ_BYTES, TellingExporter, Tracing, make_provider


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (b'{"model":"tiny","prompt":"x"}', "tiny"),
        (b'{"model":3}', None),
        (b"{}", None),
        (b"[]", None),
        (b"{", None),
        (orjson.dumps({"model": "tiny", "prompt": "x" * READ_BYTES}), None),
    ],
)
def test_the_model_that_a_text_asks_for(body: bytes, model: str | None) -> None:
    span = Tracing(TracerProvider(sampler=ALWAYS_ON)).begin("POST", "/v1/completions", "/v1/completions", {})
    assert span.asks(ParsedRequest((body,))) == model


def test_what_is_not_sampled_is_passed_on_as_such_and_not_read() -> None:
    headers = {"tracestate": "of=nobody", "authorization": "k"}
    span = Tracing(TracerProvider(sampler=ALWAYS_OFF)).begin("POST", "/v1/completions", "/v1/completions", headers)
    assert span.asks(ParsedRequest((b'{"model":"tiny"}',))) is None
    assert headers == {"authorization": "k", "traceparent": headers["traceparent"]}
    _, trace, _, bits = headers["traceparent"].split("-")
    # the lowest says sampled (W3C Trace Context section 3.2.2.5)
    assert (trace, int(bits, 16) & 1) == (span.trace_id, 0)


class Flaky(SpanExporter):
    def __init__(self, *results: SpanExportResult) -> None:
        self.results = list(results)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self.results.pop(0)


def test_a_failing_collector_is_told_once_and_so_is_its_return(caplog: pytest.LogCaptureFixture) -> None:
    good, bad = SpanExportResult.SUCCESS, SpanExportResult.FAILURE
    exporter = TellingExporter(Flaky(good, bad, bad, good, good, bad))
    with caplog.at_level(logging.INFO):
        for _ in range(6):
            exporter.export([])
    gone, back = "traces can't be sent and are dropped, until their collector takes them", "traces are sent again"
    assert caplog.messages == [gone, back, gone]


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({}, "epd-proxy"),
        ({"OTEL_SERVICE_NAME": "mine"}, "mine"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "a=b,service.name=ours"}, "ours"),
    ],
)
def test_who_sends_them(environ: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in environ.items():
        monkeypatch.setenv(variable, value)
    provider = make_provider(environ, namespace="ai", epd="qwen")
    told = provider.resource.attributes
    assert (told["service.name"], told["k8s.namespace.name"], told["epd.name"]) == (name, "ai", "qwen")
    provider.shutdown()
