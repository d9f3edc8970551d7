from __future__ import annotations

import pytest

from epd.api.names import Role
from epd.proxy.record import Trail, outcome_of
from epd.proxy.transport import Cause


@pytest.mark.parametrize(
    ("status", "left", "broken", "outcome"),
    [
        (200, False, False, "answered"),
        (304, False, False, "answered"),
        (400, False, False, "refused"),
        (499, False, False, "refused"),
        (500, False, False, "failed"),
        (200, False, True, "broken"),
        (200, True, False, "left"),
        (503, True, True, "left"),
        (None, False, False, "left"),
    ],
)
def test_a_request_ends_in_one_way(status: int | None, left: bool, broken: bool, outcome: str) -> None:
    assert outcome_of(status, left=left, broken=broken) == outcome


def test_retries_stay_with_their_request() -> None:
    one, other = Trail(), Trail()
    one.retried(Role.ENCODE, Cause.STATUS)
    one.retried(Role.PREFILL_DECODE, Cause.REFUSED)
    assert [(retry.role, retry.cause) for retry in one.retries] == [
        (Role.ENCODE, Cause.STATUS),
        (Role.PREFILL_DECODE, Cause.REFUSED),
    ]
    assert other.retries == ()


def test_waits_stay_with_their_request() -> None:
    one, other = Trail(), Trail()
    one.waited(0.5, "")
    one.waited(2, "queue_timeout")
    assert [(wait.ended - wait.begun, wait.code) for wait in one.waits] == [
        (500_000_000, ""),
        (2_000_000_000, "queue_timeout"),
    ]
    assert other.waits == ()
