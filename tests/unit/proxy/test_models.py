"""The list of models over scripted engines: who is asked, and what that says of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from epd.proxy import models
from epd.proxy.errors import ExhaustedError, OverloadedError, UnavailableError
from epd.proxy.health import State
from epd.proxy.settings import Limits
from epd.proxy.transport import Cause
from unit.proxy.engines import HANG, Scripted, arrival, bench, broken, document, member, settle, until_called

D0, D1, D2 = member("d0"), member("d1"), member("d2")
REFUSED, CUT = broken(Cause.REFUSED), broken(Cause.DISCONNECTED)


async def test_another_engine_is_asked_once() -> None:
    b = bench(D0, D1, D2, scripts={"d0": [REFUSED], "d1": [REFUSED]})
    for name, amount in (("d1", 1), ("d2", 2)):
        b.load.begin(name, amount)
    with pytest.raises(UnavailableError) as caught:
        await b.exchange.models(headers={})
    assert (caught.value.error_code, b.engines.called()) == ("engine_unavailable", ["d0", "d1"])
    # both are out by now
    assert (await b.exchange.models(headers={})).status == 200
    assert b.engines.called() == ["d0", "d1", "d2"]


async def test_an_answer_is_passed_on() -> None:
    headers = {"content-type": "application/json", "retry-after": "3", "server": "uvicorn"}
    b = bench(D0, scripts={"d0": [Scripted(status=401, headers=headers, chunks=[b"{}"])]})
    reply = await b.exchange.models(headers={"authorization": "Bearer x"})
    assert (reply.status, reply.body, b.load.counts()) == (401, b"{}", {})
    assert reply.headers == {"content-type": "application/json", "retry-after": "3"}


@pytest.mark.parametrize(
    ("answer", "times"),
    [(REFUSED, 1), (CUT, 2), (document({}, 500), 5), (document({}, 404), None), (HANG, 2)],
)
async def test_failures_speak_against_an_engine(
    answer: Any, times: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "MODELS_SECONDS", 0.01)
    b = bench(D0, scripts={"d0": [answer] * 6})
    asked = 0
    while b.exchange.health.state("d0") is State.HEALTHY and asked < 6:
        await asyncio.gather(b.exchange.models(headers={}), return_exceptions=True)
        asked += 1
    assert (asked if b.exchange.health.state("d0") is not State.HEALTHY else None) == times
    assert b.load.counts() == {}


@pytest.mark.parametrize(("answer", "healthy"), [(document({}), True), (document({}, 500), False)])
async def test_successes_speak_for_an_engine(answer: Any, healthy: bool) -> None:
    b = bench(D0, scripts={"d0": [CUT, answer, CUT]})
    for _ in range(3):
        await asyncio.gather(b.exchange.models(headers={}), return_exceptions=True)
    assert (b.exchange.health.state("d0") is State.HEALTHY) == healthy


async def test_a_proxy_that_can_connect_to_nobody_says_so() -> None:
    b = bench(D0, D1, scripts={name: [broken(Cause.LOCAL)] for name in ("d0", "d1")})
    with pytest.raises(ExhaustedError):
        await b.exchange.models(headers={})
    assert (len(b.engines.calls), b.load.counts()) == (1, {})


async def test_a_list_is_the_trial_of_an_engine_that_failed_of_one() -> None:
    b = bench(D0, scripts={"d0": [REFUSED, HANG]})
    health, now = b.exchange.health, [1000.0]
    health._clock = lambda: now[0]
    await asyncio.gather(b.exchange.models(headers={}), return_exceptions=True)
    now[0] += 1
    assert health.admits("d0")
    task = asyncio.create_task(b.exchange.models(headers={}))
    await until_called(b.engines, 2)
    assert not health.admits("d0")
    task.cancel()


async def test_a_list_does_not_speak_for_an_engine_that_fails_of_requests() -> None:
    b = bench(D0, scripts={"d0": [REFUSED]})
    await asyncio.gather(b.exchange.answer(arrival()), return_exceptions=True)
    assert (await b.exchange.models(headers={})).status == 200
    assert b.exchange.health.state("d0") is State.EJECTED


async def test_the_list_takes_a_place_as_any_request() -> None:
    b = bench(D0, limits=Limits(max_in_flight_per_engine=1, queue=1), scripts={"d0": [HANG]})
    first = asyncio.create_task(b.exchange.models(headers={}))
    await until_called(b.engines, 1)
    assert b.load.counts() == {"d0": 1}
    second = asyncio.create_task(b.exchange.models(headers={}))
    await settle()
    assert (b.exchange.admission.waiting, b.engines.called()) == (1, ["d0"])
    for refused in (b.exchange.models(headers={}), b.exchange.answer(arrival())):
        with pytest.raises(OverloadedError):
            await refused
    first.cancel()
    assert (await second).status == 200
    assert (b.engines.called(), b.load.counts()) == (["d0", "d0"], {})
