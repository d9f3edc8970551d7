"""Encoders that fail, hang or are not there: another one is asked, then the policy decides."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from epd.proxy.expiry import Expiry
from epd.proxy.settings import EncoderFailurePolicy, Limits
from protocol.proxy import stubs
from protocol.proxy.proxies import proxy
from protocol.proxy.stubs import ERROR_500, decoder, encoder, image, text

HOUR = 3600.0
"""Time of an attempt that no machine is too slow for."""


HOURS: list[Expiry[Any]] = []
"""What bounds the attempts that have one, in their order."""


@pytest.fixture(autouse=True)
def _hours(monkeypatch: pytest.MonkeyPatch) -> None:
    HOURS.clear()
    begin = Expiry.begin

    def noted(self: Expiry[Any], one: Any, now: float) -> None:
        begin(self, one, now)
        if self._seconds == HOUR:
            HOURS.append(self)

    monkeypatch.setattr(Expiry, "begin", noted)


async def hangs_for_an_hour(
    engine: stubs.StubEngine, request: Any, document: dict[str, Any]
) -> stubs.web.StreamResponse:
    """Answer nothing until the hour of the last attempt is over, which is now."""
    due = HOURS[-1]._due
    due[next(reversed(due))] = time.monotonic()
    HOURS[-1]._look()
    return await stubs.hangs(engine, request, document)


ENCODER_FAULTS = {
    "500": (stubs.status(500, ERROR_500), "status"),
    "400": (stubs.status(400, {"error": {"message": "cannot identify image file", "code": 400}}), "status"),
    "dies": (stubs.dies_after(), "disconnected"),
    "hangs": pytest.param(hangs_for_an_hour, "timeout", marks=pytest.mark.interpreted),
}


@pytest.mark.parametrize(("behave", "reason"), ENCODER_FAULTS.values(), ids=ENCODER_FAULTS.keys())
async def test_an_encoder_is_replaced_once(behave: stubs.Behaviour, reason: str) -> None:
    bad, good = encoder("bad", behave=behave), encoder("good")
    async with proxy(bad, good, decoder(), limits=Limits(encode_seconds=HOUR)) as p:
        for number in range(6):
            answer = await p.chat(image(f"data:image/png;base64,AA{number}="))
            assert (answer.status, answer.headers["x-epd-encoders"]) == (200, "good")
            assert answer.headers["x-epd-encode"] == "encoded"
        retried = p.value("epd_proxy_encodes_total", role="encode", result="retried")
        assert retried == len(bad.requests) > 0
        assert p.value("epd_proxy_retries_total", role="encode", cause=reason) == retried


@pytest.mark.parametrize(("behave", "reason"), ENCODER_FAULTS.values(), ids=ENCODER_FAULTS.keys())
async def test_under_fallback_the_prefill_sides_answer_counts(behave: stubs.Behaviour, reason: str) -> None:
    engines = [encoder(name, behave=behave) for name in ("e0", "e1", "e2")]
    pd = decoder()
    async with proxy(*engines, pd, limits=Limits(encode_seconds=HOUR)) as p:
        answer = await p.chat(text(), image())
        assert (answer.status, answer.headers["x-epd-encode"]) == (200, "fallback")
        assert pd.requests[0]["messages"][0]["content"][1]["image_url"]["url"] == stubs.PNG
        assert sum(len(engine.requests) for engine in engines) == 2
        assert p.value("epd_proxy_fallbacks_total", reason=reason) == 1
        assert p.value("epd_proxy_encodes_total", role="encode", result="failed") == 1


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [("500", 503, "encoder_unavailable"), ("400", 400, 400), ("dies", 503, "encoder_unavailable")],
)
async def test_under_fail_only_a_refusal_by_the_encoder_keeps_its_status(
    fault: str, status: int, code: str | int
) -> None:
    engines = [encoder(name, behave=ENCODER_FAULTS[fault][0]) for name in ("e0", "e1")]
    pd = decoder()
    async with proxy(*engines, pd, policy=EncoderFailurePolicy.FAIL) as p:
        answer = await p.chat(image())
        assert (answer.status, (await answer.json())["error"]["code"]) == (status, code)
        assert pd.requests == []
        assert [len(engine.requests) for engine in engines] == [1, 1]


async def test_without_encoders_the_policy_decides_and_the_demand_is_counted() -> None:
    async with proxy(decoder()) as p:
        assert (await p.chat(image())).headers["x-epd-encode"] == "fallback"
        assert p.value("epd_proxy_fallbacks_total", reason="no-encoder") == 1
        assert p.value("epd_proxy_encode_wanted_items_total", role="encode") == 1
    pd = decoder(behave=stubs.hangs)
    async with proxy(pd) as p:
        waiting = asyncio.create_task(p.chat(image()))
        await pd.started.wait()
        assert p.value("epd_proxy_encode_demand", role="encode") == 1
        waiting.cancel()
        await pd.aborted.wait()
        await p.data_port.idle.wait()
        assert p.value("epd_proxy_encode_demand", role="encode") == 0
    async with proxy(decoder(), policy=EncoderFailurePolicy.FAIL) as p:
        assert (await p.chat(image())).status == 503
        assert (await p.chat(text())).status == 200


async def test_fallbacks_are_bounded_until_their_first_content() -> None:
    pd = decoder(behave=stubs.hangs)
    async with proxy(pd, limits=Limits(max_fallback_encodes=1)) as p:
        waiting = asyncio.create_task(p.chat(image()))
        await pd.started.wait()
        answer = await p.chat(image())
        assert answer.status == 503
        assert (await answer.json())["error"]["code"] == "too_many_fallback_encodes"
        assert answer.headers["retry-after"] == "1"
        waiting.cancel()
        await pd.aborted.wait()
        await p.data_port.idle.wait()
        pd.behave = stubs.hangs_after(stubs.ROLE_CHUNK, stubs.content_chunk("re"))
        first, second = await p.chat(image(), stream=True), await p.chat(image(), stream=True)
        assert (first.status, second.status) == (200, 200)
        first.close()
        second.close()
