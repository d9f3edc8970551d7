from __future__ import annotations

import pytest

from epd.controller import errors

TERMINATING = {"message": "m", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}
UNTYPED = {"message": "failed to create typed patch object (a/b): .spec.x: field not declared in schema"}


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"message": "strict decoding error"}, errors.Rejected),
        (422, {}, errors.Rejected),
        (500, UNTYPED, errors.Rejected),
        (403, {}, errors.Forbidden),
        (403, TERMINATING, errors.NamespaceTerminating),
        (404, {}, errors.NotFound),
        (409, {}, errors.Conflict),
        (401, {}, errors.Retryable),
        (429, {}, errors.Retryable),
        (500, {"message": "etcd leader changed"}, errors.Retryable),
        (503, {}, errors.Retryable),
    ],
)
def test_what_a_status_means(status: int, body: dict[str, object], kind: type[errors.ClusterError]) -> None:
    assert type(errors.error_of(status=status, body=body, call="PATCH pods")) is kind


def test_the_words_and_the_delay_are_kept() -> None:
    error = errors.error_of(status=429, body={"message": "slow down"}, call="GET pods", retry_after=7)
    assert isinstance(error, errors.Retryable)
    assert (str(error), error.after) == ("GET pods: slow down", 7)
    assert str(errors.error_of(status=503, body={}, call="GET pods")) == "GET pods: HTTP 503"
