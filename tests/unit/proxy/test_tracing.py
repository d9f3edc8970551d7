from __future__ import annotations

import subprocess
import sys

import pytest

from epd.proxy.tracing import endpoint_of, start_tracing

TRACES = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
ALL = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.mark.parametrize(
    ("environ", "endpoint"),
    [
        ({}, None),
        ({ALL: ""}, None),
        ({ALL: "http://c:4318"}, "http://c:4318"),
        ({TRACES: "http://t/v1/traces", ALL: "http://c:4318"}, "http://t/v1/traces"),
        ({ALL: "http://c:4318", "OTEL_SDK_DISABLED": "true"}, None),
        ({ALL: "http://c:4318", "OTEL_SDK_DISABLED": "false"}, "http://c:4318"),
        ({ALL: "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, None),
        ({"OTEL_SERVICE_NAME": "x"}, None),
    ],
)
def test_an_endpoint_turns_it_on(environ: dict[str, str], endpoint: str | None) -> None:
    assert endpoint_of(environ) == endpoint


def test_other_protocols_are_said_not_to_be_spoken(caplog: pytest.LogCaptureFixture) -> None:
    environ = {ALL: "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    assert start_tracing(environ, namespace="", epd="") is None
    assert caplog.messages == ["no traces are sent: OTLP is spoken over http/protobuf only, not grpc"]


def test_nothing_is_loaded_where_it_is_off() -> None:
    code = (
        "import sys, epd.proxy.main, epd.proxy.tracing as t; t.start_tracing({}, namespace='', epd=''); "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": "operator"})
    assert (done.stdout, done.stderr) == ("[]\n", "")
