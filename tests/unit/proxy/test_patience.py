from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from epd.proxy.errors import ProxyError, RequestTimeoutError, SlowRequestError
from epd.proxy.patience import (
    BODY_SECONDS,
    HEAD_SECONDS,
    IDLE_SECONDS,
    SWALLOW_SECONDS,
    Patience,
    last_refusal_due,
    late_body,
    late_head,
)


@pytest.fixture
async def patience() -> Patience:
    return Patience(asyncio.get_running_loop(), lambda now: None)


def waits(patience: Patience, wait: Callable[[], None], seconds: float) -> bool:
    """Whether it waits so long."""
    begun = time.monotonic()
    wait()
    patience.cancel()
    return begun <= patience.due - seconds <= time.monotonic()


async def test_each_wait_has_its_time(patience: Patience) -> None:
    assert waits(patience, patience.await_request, IDLE_SECONDS)
    assert waits(patience, patience.await_reader, BODY_SECONDS)
    assert waits(patience, patience.await_refused, SWALLOW_SECONDS)
    begun = time.monotonic()
    assert begun <= last_refusal_due() - BODY_SECONDS <= time.monotonic()


async def test_a_head_has_its_time_from_the_first_byte(patience: Patience) -> None:
    patience.await_request()
    assert waits(patience, patience.await_head, HEAD_SECONDS)
    first = patience.due
    patience.await_head()
    assert patience.due == first


async def test_a_body_goes_on_and_ends_by_its_deadline(patience: Patience) -> None:
    now = time.monotonic()
    assert waits(patience, lambda: patience.await_body(now + 1000), BODY_SECONDS)
    patience.await_body(now + 1)
    assert patience.due == now + 1
    patience.cancel()


async def test_it_knows_since_when_it_waits(patience: Patience) -> None:
    begun = time.monotonic()
    patience.await_request()
    assert begun <= patience.awaits_since(begun=False) <= time.monotonic()
    patience.await_head()
    assert begun <= patience.awaits_since(begun=True) <= time.monotonic()
    patience.cancel()


def said(error: ProxyError) -> tuple[type[ProxyError], str]:
    return type(error), error.message


def test_who_is_late_is_told_what_did_not_come() -> None:
    assert said(late_head()) == (SlowRequestError, "the head did not arrive within 10 s")
    assert said(late_body(1, 2)) == (SlowRequestError, "no byte of the body came for 30 s")
    too_late = RequestTimeoutError, "the body did not arrive within spec.proxy.timeouts.request"
    assert said(late_body(2, 2)) == too_late
