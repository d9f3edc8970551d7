"""What a call of the API server may end with, split by what the reconciler does about it.

`Retryable` is tried again with backoff; `Rejected` needs another spec and becomes `Stalled`. Decides from status code
and the Status object's own reason; from the text of a message only where the API server gives nothing else.
"""

from __future__ import annotations

from typing import Any, Final

_UNTYPED: Final = "failed to create typed patch object"
"""An apply with an unknown or mistyped field is answered with 500 and these words (k8s.io/apimachinery
pkg/util/managedfields/internal/structuredmerge.go, seen with 1.35): the strict check of decoding comes after it."""


class ClusterError(Exception):
    """Any failed call. `str()` is one line that can be shown to the user."""


class Retryable(ClusterError):  # noqa: N818 (a state, read as `except NotFound`)
    """May succeed when tried again: timeouts, lost connections, 429, 5xx.

    `after` is the API server's Retry-After in seconds, when it gave one.
    """

    def __init__(self, message: str, *, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class Conflict(Retryable):
    """409: the object changed, or a precondition (UID, resourceVersion) did not hold. Read again."""


class Forbidden(Retryable):
    """403: a verb is missing from the operator's RBAC, or an admission plugin (quota, policy) refused."""


class NamespaceTerminating(ClusterError):  # noqa: N818 (a state, read as `except NotFound`)
    """The namespace is being deleted: nothing can be made there, and nothing needs to be."""


class NotFound(ClusterError):  # noqa: N818 (a state, read as `except NotFound`)
    """404: the object, its namespace or its kind does not exist."""


class Rejected(ClusterError):  # noqa: N818 (a state, read as `except NotFound`)
    """400 or 422: the API server refuses the object as it is; trying again changes nothing."""


def error_of(*, status: int, body: dict[str, Any], call: str, retry_after: float | None = None) -> ClusterError:
    """The error for an HTTP status and a `v1.Status` body (may be empty). `call` is a short "verb resource" text.

    Source of codes and reasons: k8s.io/apimachinery/pkg/api/errors.
    """
    words = str(body.get("message") or f"HTTP {status}")
    message = f"{call}: {words}"
    causes = (body.get("details") or {}).get("causes") or ()
    if any(cause.get("reason") == "NamespaceTerminating" for cause in causes):
        return NamespaceTerminating(message)
    match status:
        case 400 | 422:
            return Rejected(message)
        case 500 if words.startswith(_UNTYPED):
            return Rejected(message)
        case 403:
            return Forbidden(message)
        case 404:
            return NotFound(message)
        case 409:
            return Conflict(message)
        case _:
            return Retryable(message, after=retry_after)
