"""Errors that the proxy itself answers with, in OpenAI's shape or Anthropic's.

Never used for answers of an engine: those are passed on with their own status and body.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final

RETRY_SOON_SECONDS = 1
"""Retry-After of an overload: the queue moves within a second."""
RETRY_LATER_SECONDS = 5
"""Retry-After while engines are missing: a pod needs at least one readiness period to come back."""


_ANTHROPIC_TYPES: Final[Mapping[int, str]] = MappingProxyType(
    {
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        503: "overloaded_error",
        504: "timeout_error",
    }
)
"""Types that Anthropic's API documents, by status; what is none of these is `invalid_request_error` or `api_error`. Its
own status of an overload is 529, which no load balancer knows."""


class ProxyError(Exception):
    """An answer with `status`; `param` is the path of the offending field in the request's body."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: ClassVar[str] = "internal_error"
    retry_after: ClassVar[int | None] = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.error_code = code or self.code

    def headers(self) -> dict[str, str]:
        """Headers that belong to this error, `Retry-After` (seconds) among them."""
        headers = {"content-type": "application/json"}
        if self.retry_after is not None:
            headers["retry-after"] = str(self.retry_after)
        return headers

    def body(self) -> bytes:
        """The JSON body: `{"error": {"message", "type", "code", "param"}}`."""
        error = {"message": self.message, "type": self.type, "code": self.error_code, "param": self.param}
        return json.dumps({"error": error}).encode()

    def anthropic_body(self) -> bytes:
        """The JSON body as clients of `/v1/messages` expect it: `{"type": "error", "error": {"type", "message"}}`."""
        kind = _ANTHROPIC_TYPES.get(self.status) or ("invalid_request_error" if self.status < 500 else "api_error")
        # there is no place for the path but the message, where Anthropic's own errors have it
        message = self.message
        if self.param and not message.startswith(self.param):
            message = f"{self.param}: {message}"
        return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()


class InvalidRequestError(ProxyError):
    """The body can't be sent to an engine as it is."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_request"


class MalformedRequestError(ProxyError):
    """The bytes are no request of HTTP/1.1 that all readers would read alike; the connection is closed."""

    status = 400
    type = "invalid_request_error"
    code = "malformed_http"


class UnauthorizedError(ProxyError):
    """The request has no API key, or none that is in force."""

    status = 401
    type = "invalid_request_error"
    code = "invalid_api_key"

    def headers(self) -> dict[str, str]:
        """With `WWW-Authenticate`, which RFC 9110 demands of a 401."""
        return {**super().headers(), "www-authenticate": "Bearer"}


class NotFoundError(ProxyError):
    """The path is not one that the proxy serves."""

    status = 404
    type = "invalid_request_error"
    code = "route_not_found"


class MethodNotAllowedError(ProxyError):
    """The path is served, with another method."""

    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"

    def __init__(self, message: str, *, allowed: str) -> None:
        super().__init__(message)
        self._allowed = allowed

    def headers(self) -> dict[str, str]:
        """With `Allow`, which RFC 9110 demands of a 405."""
        return {**super().headers(), "allow": self._allowed}


class SlowRequestError(ProxyError):
    """The head did not come in time, or the body stood still."""

    status = 408
    type = "invalid_request_error"
    code = "request_too_slow"


class BodyTooLargeError(ProxyError):
    """The body is larger than `spec.proxy.media.maxBodySize`."""

    status = 413
    type = "invalid_request_error"
    code = "body_too_large"


class UriTooLongError(ProxyError):
    """The request line is longer than any that is needed here."""

    status = 414
    type = "invalid_request_error"
    code = "uri_too_long"


class UnsupportedEncodingError(ProxyError):
    """The body is compressed, which engines do not read and which would hide its size."""

    status = 415
    type = "invalid_request_error"
    code = "unsupported_encoding"


class ExpectationFailedError(ProxyError):
    """`Expect` asks for something else than 100-continue."""

    status = 417
    type = "invalid_request_error"
    code = "expectation_failed"


class HeadTooLargeError(ProxyError):
    """The head is too large, or has too many fields."""

    status = 431
    type = "invalid_request_error"
    code = "head_too_large"


class OverloadedError(ProxyError):
    """As many requests as `spec.proxy.limits.maxInFlight`, or as large ones as memory allows, are in flight."""

    status = 429
    type = "rate_limit_error"
    code = "too_many_requests"
    retry_after = RETRY_SOON_SECONDS


class TenantOverloadedError(OverloadedError):
    """As many requests of the tenant as `spec.proxy.limits.maxPerTenant` are in flight."""

    code = "tenant_overloaded"


class UnknownMethodError(ProxyError):
    """The method is none that HTTP defines."""

    status = 501
    type = "invalid_request_error"
    code = "unknown_method"


class UnknownTransferCodingError(ProxyError):
    """The body comes in a transfer coding other than chunked."""

    status = 501
    type = "invalid_request_error"
    code = "unknown_transfer_coding"


class UnavailableError(ProxyError):
    """No engine can take the request now."""

    status = 503
    type = "server_error"
    code = "no_ready_engine"
    retry_after = RETRY_LATER_SECONDS


class EncoderUnavailableError(UnavailableError):
    """No encoder could encode the media, and the policy does not let the prefill side do it."""

    code = "encoder_unavailable"


class ExhaustedError(UnavailableError):
    """The proxy itself can open no connection to an engine; another of its replicas may."""

    code = "proxy_exhausted"
    retry_after = RETRY_SOON_SECONDS

    def __init__(self) -> None:
        super().__init__("the proxy has no descriptor, port or memory left for a connection to an engine")


class FallbackLimitError(UnavailableError):
    """As many requests as `spec.proxy.limits.maxFallbackEncodes` have their media encoded by the prefill side."""

    code = "too_many_fallback_encodes"
    retry_after = RETRY_SOON_SECONDS


class SuspendedError(UnavailableError):
    """The EPDDeployment is suspended."""

    code = "suspended"
    retry_after = 60
    """A suspended deployment comes back by a person's hand, not within seconds."""


class RequestTimeoutError(ProxyError):
    """The request took longer than `spec.proxy.timeouts.request`."""

    status = 504
    type = "server_error"
    code = "request_timeout"

    def __init__(self, message: str = "the request took longer than spec.proxy.timeouts.request") -> None:
        super().__init__(message)


class UnsupportedVersionError(ProxyError):
    """The request is of another version of HTTP than 1.1 and 1.0."""

    status = 505
    type = "invalid_request_error"
    code = "unsupported_http_version"
