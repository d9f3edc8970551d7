"""Engines that fail, and clients that leave."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import aiohttp
import pytest

from epd.proxy.expiry import Expiry
from epd.proxy.settings import EncoderFailurePolicy, Limits
from protocol.proxy import stubs
from protocol.proxy.stubs import IN_STREAM_ERROR, decoder, encoder, image, proxy, text

ERROR_500 = {"error": {"message": "Internal server error", "type": "InternalServerError", "code": 500}}
BROKEN = {
    "500": stubs.status(500, ERROR_500),
    "503": stubs.status(503, ERROR_500),
    "in-stream error": stubs.streams(stubs.ROLE_CHUNK, stubs.event(IN_STREAM_ERROR), stubs.DONE),
    "dies before its head": stubs.dies_after(),
    "dies after the role chunk": stubs.dies_after(stubs.ROLE_CHUNK),
}


@pytest.mark.parametrize("behave", BROKEN.values(), ids=BROKEN.keys())
async def test_the_prefill_side_is_tried_once_more_elsewhere(behave: stubs.Behaviour) -> None:
    bad, good = decoder("bad", behave=behave), decoder("good")
    async with proxy(encoder(), bad, good) as p:
        for number in range(8):
            # the id breaks ties between idle engines, so this spreads the same way each time
            fields = {"stream": True, "headers": {"x-request-id": f"r{number}"}}
            answer = await p.chat(image(f"data:image/png;base64,AA{number}="), **fields)
            assert answer.status == 200
            assert b'"re"' in await answer.read()
            assert answer.headers["x-epd-prefill"] == "good"
        assert len(good.requests) == 8
        assert 0 < len(bad.requests) < 8
        assert p.load.counts() == {}


async def test_an_error_inside_the_stream_gets_its_own_status() -> None:
    pd = decoder(behave=BROKEN["in-stream error"])
    async with proxy(encoder(), pd) as p:
        answer = await p.chat(text(), stream=True)
        assert answer.status == 500
        assert answer.content_type == "application/json"
        assert await answer.json() == IN_STREAM_ERROR
        # alone, so there was nobody to retry with
        assert len(pd.requests) == 1


async def test_a_client_error_inside_the_stream_is_not_retried() -> None:
    error = {"error": {"message": "too long", "type": "BadRequestError", "code": 400}}
    engines = [decoder(n, behave=stubs.streams(stubs.ROLE_CHUNK, stubs.event(error))) for n in ("pd0", "pd1")]
    async with proxy(*engines) as p:
        answer = await p.chat(text(), stream=True)
        assert (answer.status, await answer.json()) == (400, error)
        assert sum(len(engine.requests) for engine in engines) == 1


async def test_the_engines_own_error_is_the_answer_when_both_fail() -> None:
    engines = [decoder(name, behave=stubs.status(503, ERROR_500)) for name in ("pd0", "pd1")]
    async with proxy(*engines) as p:
        answer = await p.chat(text())
        assert (answer.status, await answer.json()) == (503, ERROR_500)
        assert [len(engine.requests) for engine in engines] == [1, 1]
        assert p.value("epd_proxy_retries_total", role="prefill-decode", cause="status") == 1


async def test_a_refused_connection_goes_to_another_engine_and_else_is_503() -> None:
    gone, good = decoder("gone"), decoder("good")
    async with gone.serve():
        pass
    async with proxy(good) as p:
        p.members.replace([gone.member(), good.member()])
        for _ in range(8):
            answer = await p.chat(text())
            assert answer.headers["x-epd-prefill"] == "good"
        p.members.replace([gone.member()])
        answer = await p.chat(text())
        assert answer.status == 503
        assert (await answer.json())["error"]["code"] == "engine_unavailable"
        assert answer.headers["retry-after"] == "5"


async def test_a_single_engine_is_tried_again_when_only_its_connection_broke() -> None:
    pd = decoder()

    async def behave(engine: stubs.StubEngine, request: object, document: object) -> object:
        usual = stubs.generate if len(engine.requests) > 1 else stubs.dies_after()
        return await usual(engine, request, document)  # type: ignore[arg-type] # handed through

    pd.behave = behave  # type: ignore[assignment] # as above
    async with proxy(pd) as p:
        assert (await p.chat(text())).status == 200
        assert len(pd.requests) == 2


async def test_after_the_first_content_errors_pass_and_a_broken_stream_breaks() -> None:
    chunks = (stubs.ROLE_CHUNK, stubs.content_chunk("re"))
    late = decoder(behave=stubs.streams(*chunks, stubs.event(IN_STREAM_ERROR), stubs.DONE))
    async with proxy(late) as p:
        answer = await p.chat(text(), stream=True)
        assert await answer.read() == b"".join([*chunks, stubs.event(IN_STREAM_ERROR), stubs.DONE])
    engines = [decoder(name, behave=stubs.dies_after(*chunks)) for name in ("pd0", "pd1")]
    async with proxy(*engines) as p:
        answer = await p.chat(text(), stream=True)
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
        assert sum(len(engine.requests) for engine in engines) == 1
        await p.data_port.idle.wait()
        assert p.load.counts() == {}


async def test_a_silent_stream_ends_after_the_idle_timeout() -> None:
    pd = decoder(behave=stubs.hangs_after(stubs.ROLE_CHUNK, stubs.content_chunk("re")))
    async with proxy(pd, limits=Limits(idle_seconds=0.1)) as p:
        answer = await p.chat(text(), stream=True)
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
        await pd.aborted.wait()


async def test_a_request_that_takes_too_long_is_504_and_leaves_nothing_behind() -> None:
    e, pd = encoder(), decoder(behave=stubs.hangs)
    async with proxy(e, pd) as p:
        request = asyncio.create_task(p.chat(image()))
        await pd.started.wait()
        p.run_out_of_time()
        answer = await request
        assert answer.status == 504
        assert (await answer.json())["error"]["code"] == "request_timeout"
        await pd.aborted.wait()
        assert p.load.counts() == {}


async def test_a_client_that_does_not_read_loses_its_place_in_the_end() -> None:
    flood = stubs.content_chunk("x" * 60_000)
    pd = decoder(behave=stubs.streams(stubs.ROLE_CHUNK, *[flood] * 500))
    async with proxy(pd, limits=Limits(request_seconds=0.2)) as p:
        answer = await p.chat(text(), stream=True)
        await asyncio.wait_for(p.data_port.idle.wait(), 10)
        assert p.load.counts() == {}
        answer.close()


# encoders

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


# clients that leave


async def test_a_client_that_leaves_aborts_the_primer() -> None:
    e, pd = encoder(behave=stubs.hangs), decoder()
    async with proxy(e, pd) as p:
        task = asyncio.create_task(p.chat(image()))
        await e.started.wait()
        task.cancel()
        await e.aborted.wait()
        await p.data_port.idle.wait()
        assert pd.requests == []
        assert p.load.counts() == {}
        assert p.value("epd_proxy_client_disconnects_total") == 1


async def test_a_client_that_leaves_aborts_the_stream() -> None:
    pd = decoder(behave=stubs.hangs_after(stubs.ROLE_CHUNK, stubs.content_chunk("re")))
    async with proxy(encoder(), pd) as p:
        answer = await p.chat(image(), stream=True)
        answer.close()
        await pd.aborted.wait()
        await p.data_port.idle.wait()
        assert p.load.counts() == {}
        assert p.value("epd_proxy_client_disconnects_total") == 1


async def test_a_client_that_leaves_before_the_first_content_aborts_the_engine() -> None:
    pd = decoder(behave=stubs.hangs_after(stubs.ROLE_CHUNK))
    async with proxy(pd) as p:
        task = asyncio.create_task(p.chat(text(), stream=True))
        await pd.started.wait()
        task.cancel()
        await pd.aborted.wait()


async def test_a_shared_primer_outlives_the_client_that_began_it() -> None:
    release = asyncio.Event()

    async def behave(engine: stubs.StubEngine, request: object, document: dict[str, object]) -> object:
        await release.wait()
        return await stubs.encode(engine, request, document)  # type: ignore[arg-type] # handed through

    e, pd = encoder(behave=behave), decoder()  # type: ignore[arg-type] # as above
    async with proxy(e, pd) as p:
        first = asyncio.create_task(p.chat(image()))
        await e.started.wait()
        second = asyncio.create_task(p.chat(image()))
        await stubs.until(lambda: p.value("epd_proxy_encode_wanted_items_total", role="encode") == 2)
        first.cancel()
        await stubs.until(lambda: p.data_port.in_flight == 1)
        release.set()
        answer = await second
        assert (answer.status, answer.headers["x-epd-encoders"]) == (200, "e0")
        assert len(e.requests) == 1
        assert not e.aborted.is_set()
        assert p.value("epd_proxy_encodes_total", role="encode", result="coalesced") == 1


# what never reaches an engine


async def test_refusals_of_the_proxy() -> None:
    e, pd = encoder(), decoder()
    async with proxy(e, pd, limits=Limits(max_body_bytes=4096)) as p:
        table = [
            (await p.http.post("/v1/audio/speech", json={}), 404, "route_not_found"),
            (await p.http.post("/sleep"), 404, "route_not_found"),
            (await p.http.get("/v1//chat/completions"), 404, "route_not_found"),
            (await p.http.get(stubs.CHAT), 405, "method_not_allowed"),
            (await p.http.post(stubs.CHAT, data=b"{"), 400, "invalid_json"),
            (await p.http.post(stubs.CHAT, data=b"x" * 5000), 413, "body_too_large"),
            (await p.http.post(stubs.CHAT, data=_slices(b"x" * 5000)), 413, "body_too_large"),
            (await p.chat({"type": "image_embeds", "image_embeds": "AAAA"}), 400, "invalid_request"),
            (await p.chat(image("https://img.example.com/a.png")), 400, "media_domain_not_allowed"),
        ]
        for answer, status, code in table:
            body = await answer.json()
            assert (answer.status, body["error"]["code"]) == (status, code), body
            assert set(body["error"]) == {"message", "type", "code", "param"}
            assert answer.headers["x-request-id"]
        assert "POST /v1/chat/completions" in (await table[0][0].json())["error"]["message"]
        assert "spec.proxy.media.maxBodySize" in (await table[5][0].json())["error"]["message"]
        assert (await table[8][0].json())["error"] == {
            "type": "invalid_request_error",
            "code": "media_domain_not_allowed",
            "message": "image_url host img.example.com is not in spec.proxy.media.allowedDomains",
            "param": "messages[0].content[0].image_url.url",
        }
        assert e.requests == pd.requests == []


async def _slices(data: bytes) -> object:
    for start in range(0, len(data), 1000):
        yield data[start : start + 1000]


async def test_more_than_max_in_flight_is_429() -> None:
    pd = decoder(behave=stubs.hangs)
    async with proxy(pd, limits=Limits(max_in_flight=1)) as p:
        task = asyncio.create_task(p.chat(text()))
        await pd.started.wait()
        answer = await p.chat(text())
        assert answer.status == 429
        assert answer.headers["retry-after"] == "1"
        assert json.loads(await answer.read())["error"]["code"] == "too_many_requests"
        task.cancel()
        await pd.aborted.wait()


async def test_health_is_whether_a_request_can_be_answered() -> None:
    pd = decoder()
    async with proxy(pd) as p:
        assert (await p.http.get("/health")).status == 200
        p.members.replace([pd.member(ready=False)])
        answer = await p.http.get("/healthz")
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        answer = await p.chat(text())
        assert (answer.status, (await answer.json())["error"]["code"]) == (503, "no_ready_engine")


async def test_suspended_answers_503_and_stays_ready() -> None:
    async with proxy(suspended=True) as p:
        for answer in (await p.chat(text()), await p.http.get("/v1/models"), await p.http.get("/health")):
            assert (answer.status, (await answer.json())["error"]["code"]) == (503, "suspended")
            assert answer.headers["retry-after"] == "60"
        assert (await p.admin.get("/readyz")).status == 200
