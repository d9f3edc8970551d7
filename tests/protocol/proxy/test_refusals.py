"""What never reaches an engine."""

from __future__ import annotations

import asyncio
import json

from epd.proxy.settings import Limits
from protocol.proxy import stubs
from protocol.proxy.proxies import proxy
from protocol.proxy.stubs import decoder, encoder, image, text


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
