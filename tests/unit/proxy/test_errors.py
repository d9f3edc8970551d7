from __future__ import annotations

import json

import pytest

from epd.proxy import errors


@pytest.mark.parametrize(
    ("error", "status", "kind", "code", "retry_after"),
    [
        (errors.ProxyError("m"), 500, "server_error", "internal_error", None),
        (errors.InvalidRequestError("m", param="a.b"), 400, "invalid_request_error", "invalid_request", None),
        (errors.InvalidRequestError("m", code="c"), 400, "invalid_request_error", "c", None),
        (errors.MalformedRequestError("m"), 400, "invalid_request_error", "malformed_http", None),
        (errors.SlowRequestError("m"), 408, "invalid_request_error", "request_too_slow", None),
        (errors.UriTooLongError("m"), 414, "invalid_request_error", "uri_too_long", None),
        (errors.ExpectationFailedError("m"), 417, "invalid_request_error", "expectation_failed", None),
        (errors.HeadTooLargeError("m"), 431, "invalid_request_error", "head_too_large", None),
        (errors.UnknownMethodError("m"), 501, "invalid_request_error", "unknown_method", None),
        (errors.UnknownTransferCodingError("m"), 501, "invalid_request_error", "unknown_transfer_coding", None),
        (errors.UnsupportedVersionError("m"), 505, "invalid_request_error", "unsupported_http_version", None),
        (errors.NotFoundError("m"), 404, "invalid_request_error", "route_not_found", None),
        (errors.MethodNotAllowedError("m", allowed="GET"), 405, "invalid_request_error", "method_not_allowed", None),
        (errors.BodyTooLargeError("m"), 413, "invalid_request_error", "body_too_large", None),
        (errors.UnsupportedEncodingError("m"), 415, "invalid_request_error", "unsupported_encoding", None),
        (errors.OverloadedError("m"), 429, "rate_limit_error", "too_many_requests", "1"),
        (errors.UnavailableError("m"), 503, "server_error", "no_ready_engine", "5"),
        (errors.EncoderUnavailableError("m"), 503, "server_error", "encoder_unavailable", "5"),
        (errors.FallbackLimitError("m"), 503, "server_error", "too_many_fallback_encodes", "1"),
        (errors.SuspendedError("m"), 503, "server_error", "suspended", "60"),
        (errors.RequestTimeoutError("m"), 504, "server_error", "request_timeout", None),
    ],
)
def test_every_error_has_openais_shape(
    error: errors.ProxyError, status: int, kind: str, code: str, retry_after: str | None
) -> None:
    body = {"message": "m", "type": kind, "code": code, "param": error.param}
    assert (error.status, json.loads(error.body())) == (status, {"error": body})
    assert error.headers().get("retry-after") == retry_after
    assert error.headers()["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.ProxyError("m"), "api_error"),
        (errors.InvalidRequestError("m"), "invalid_request_error"),
        (errors.MethodNotAllowedError("m", allowed="POST"), "invalid_request_error"),
        (errors.NotFoundError("m"), "not_found_error"),
        (errors.BodyTooLargeError("m"), "request_too_large"),
        (errors.OverloadedError("m"), "rate_limit_error"),
        (errors.UnavailableError("m"), "overloaded_error"),
        (errors.RequestTimeoutError("m"), "timeout_error"),
        (errors.UnsupportedVersionError("m"), "api_error"),
    ],
)
def test_anthropics_shape(error: errors.ProxyError, kind: str) -> None:
    assert json.loads(error.anthropic_body()) == {"type": "error", "error": {"type": kind, "message": "m"}}


def test_anthropics_shape_says_where_in_the_message() -> None:
    for param, message, shown in (
        ("messages[0].type", "type must be a string", "messages[0].type: type must be a string"),
        ("messages", "messages must be a list", "messages must be a list"),
    ):
        error = errors.InvalidRequestError(message, param=param)
        assert json.loads(error.anthropic_body())["error"]["message"] == shown


def test_a_405_names_the_method() -> None:
    assert errors.MethodNotAllowedError("m", allowed="GET").headers()["allow"] == "GET"
