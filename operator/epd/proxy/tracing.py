"""Whether requests are traced: read from the environment, by the names that OpenTelemetry gives its settings.

Loads OpenTelemetry only where an endpoint is set. Never sends or makes a span by itself (`spans.py` does).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from epd.proxy.spans import Tracing

log = logging.getLogger(__name__)

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL: Final = "http/protobuf"
"""The one that is spoken, and the default by the specification; gRPC would triple the image."""


def endpoint_of(environ: Mapping[str, str]) -> str | None:
    """Where traces are to go; None if nowhere."""
    disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if disabled or environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none":
        return None
    return next((endpoint for name in ENDPOINTS if (endpoint := environ.get(name, "").strip())), None)


def start_tracing(environ: Mapping[str, str], *, namespace: str, epd: str, tls: bool = False) -> Tracing | None:
    """Begin to trace, if there is somewhere to send traces to; `tls` says how clients come.

    Settings that make no sense are logged; then no trace is sent, since a proxy has to serve without them too.
    """
    endpoint = endpoint_of(environ)
    if endpoint is None:
        return None
    protocol = next((said for name in PROTOCOLS if (said := environ.get(name, "").strip())), PROTOCOL)
    if protocol != PROTOCOL:
        log.error("no traces are sent: OTLP is spoken over %s only, not %s", PROTOCOL, protocol)
        return None
    from epd.proxy.spans import Tracing, make_provider

    try:
        provider = make_provider(environ, namespace=namespace, epd=epd)
    except ValueError as error:
        log.error("no traces are sent: %s", error)
        return None
    # without the user and the password that a URL may have
    log.info("traces go to %s", urlsplit(endpoint).hostname)
    return Tracing(provider, scheme="https" if tls else "http")
