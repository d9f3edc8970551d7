"""What clients and engines see of ordinary requests."""

from __future__ import annotations

import json

import pytest

from epd.api.names import Role
from epd.proxy.media import MediaPolicy
from protocol.proxy import stubs
from protocol.proxy.proxies import proxy
from protocol.proxy.stubs import CHAT, PNG, decoder, encoder, image, status, text


async def test_text_goes_to_the_prefill_side_alone() -> None:
    e, pd = encoder(), decoder()
    async with proxy(e, pd) as p:
        answer = await p.chat(text(), headers={"x-request-id": "abc", "Authorization": "Bearer k", "X-Secret": "s"})
        assert answer.status == 200
        assert (await answer.json())["choices"][0]["message"]["content"] == "red from pd0"
        assert e.requests == []
        assert answer.headers["x-request-id"] == pd.headers[0]["x-request-id"] == "abc"
        assert pd.headers[0]["authorization"] == "Bearer k"
        assert "x-secret" not in pd.headers[0]
        assert answer.headers["x-epd-encode"] == "none"
        assert "x-epd-encoders" not in answer.headers


async def test_media_is_primed_and_named_alike_on_both_sides() -> None:
    e, pd = encoder(), decoder()
    async with proxy(e, pd) as p:
        answer = await p.chat(
            text("What is"),
            image(uuid="../evil"),
            image("data:image/png;base64,AAAA"),
            image(),
            mm_processor_kwargs={"min_pixels": 1},
            temperature=0,
            headers={"x-request-id": "r1", "traceparent": "00-1-2-01", "X-data-parallel-rank": "3"},
        )
        assert answer.status == 200
        [primer] = e.requests
        [sent] = pd.requests
        first, second = primer["messages"][0]["content"]
        assert primer == {
            "model": "tiny",
            "mm_processor_kwargs": {"min_pixels": 1},
            "stream": False,
            "messages": [{"role": "user", "content": [first, second]}],
        }
        assert first["image_url"] == {"url": PNG}
        assert len(first["uuid"]) == len(second["uuid"]) == 64
        assert sent["messages"][0]["content"] == [text("What is"), first, second, first]
        assert e.headers[0]["x-request-id"] == "r1-e0"
        assert e.headers[0]["traceparent"] == "00-1-2-01"
        assert "x-data-parallel-rank" not in e.headers[0] | pd.headers[0]
        assert answer.headers["x-epd-encode"] == "encoded"
        assert answer.headers["x-epd-encoders"] == "e0"
        assert answer.headers["x-epd-prefill"] == "pd0"
        assert answer.headers["x-epd-model-version"] == "v1-tiny-0123456789ab"
        assert answer.headers["x-epd-items"] == f"{first['uuid']},{second['uuid']}"
        assert p.value("epd_proxy_encodes_total", role="encode", result="encoded") == 2
        assert p.value("epd_proxy_encode_demand", role="encode") == 0
        assert p.load.counts() == {}


async def test_urls_keep_their_identity_to_the_engines() -> None:
    e, pd = encoder(), decoder()
    media = MediaPolicy(allowed_domains=frozenset({"img.example.com"}))
    async with proxy(e, pd, media=media) as p:
        answer = await p.chat(image("https://img.example.com/a.png"))
        assert e.requests[0]["messages"][0]["content"] == [image("https://img.example.com/a.png")]
        assert pd.requests[0]["messages"][0]["content"] == [image("https://img.example.com/a.png")]
        assert answer.headers["x-epd-items"] == "content-of-https://img.example.com/a.png"


async def test_only_images_are_batched() -> None:
    e, pd = encoder(), decoder()
    sound = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    video = {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}
    async with proxy(e, pd) as p:
        answer = await p.chat(image(), sound, image("data:image/png;base64,BBBB"), video)
        assert answer.status == 200
        types = sorted([part["type"] for part in r["messages"][0]["content"]] for r in e.requests)
        assert types == [["image_url", "image_url"], ["input_audio"], ["video_url"]]


async def test_aggregated_engines_get_the_media_with_identifiers() -> None:
    pd = decoder()
    async with proxy(pd, roles=frozenset({Role.PREFILL_DECODE})) as p:
        answer = await p.chat(image())
        assert answer.headers["x-epd-encode"] == "none"
        assert len(pd.requests[0]["messages"][0]["content"][0]["uuid"]) == 64


async def test_a_stream_is_passed_on_byte_for_byte() -> None:
    async with proxy(encoder(), decoder()) as p:
        answer = await p.chat(image(), stream=True)
        assert answer.status == 200
        assert answer.content_type == "text/event-stream"
        assert answer.headers["x-epd-encoders"] == "e0"
        chunks = [stubs.ROLE_CHUNK, stubs.content_chunk("re"), stubs.content_chunk("d"), stubs.DONE]
        assert await answer.read() == b"".join(chunks)
        assert p.value("epd_proxy_time_to_first_token_seconds_count") == 1


async def test_content_arrives_before_the_stream_ends() -> None:
    chunks = (stubs.ROLE_CHUNK, stubs.content_chunk("re"))
    pd = decoder(behave=stubs.hangs_after(*chunks))
    async with proxy(pd) as p:
        answer = await p.chat(text(), stream=True)
        assert await answer.content.readexactly(len(b"".join(chunks))) == b"".join(chunks)
        assert p.data_port.in_flight == 1
        answer.close()


async def test_transfer_fields_pass_in_neither_direction() -> None:
    pd = decoder()
    async with proxy(pd) as p:
        answer = await p.chat(text(), kv_transfer_params={"remote_host": "x"}, ec_transfer_params={"a": 1})
        assert set(pd.requests[0]) == {"model", "messages"}
        assert set(await answer.json()) == {"choices"}


@pytest.mark.parametrize("code", [400, 401, 404])
async def test_refusals_of_the_engine_are_passed_on(code: int) -> None:
    body = {"error": {"message": "no such model", "code": code}}
    engines = [decoder(name, behave=stubs.status(code, body)) for name in ("pd0", "pd1")]
    async with proxy(*engines) as p:
        answer = await p.chat(text())
        assert answer.status == code
        assert await answer.json() == body
        assert sum(len(engine.requests) for engine in engines) == 1


async def test_completions_and_models() -> None:
    pd = decoder()
    async with proxy(encoder(), pd) as p:
        answer = await p.http.post("/v1/completions", json={"prompt": "a", "kv_transfer_params": {}})
        assert answer.status == 200
        assert pd.requests == [{"prompt": "a"}]
        refused = await p.http.post("/v1/completions", json={"prompt_embeds": "AAAA"})
        assert refused.status == 400
        assert (await refused.json())["error"]["param"] == "prompt_embeds"
        models = await p.http.get("/v1/models")
        assert (await models.json())["data"] == [{"id": "tiny"}]


async def test_engine_connections_are_used_again() -> None:
    e, pd = encoder(), decoder()
    async with proxy(e, pd) as p:
        for number in range(5):
            answer = await p.chat(image(f"data:image/png;base64,AA{number}="), stream=bool(number % 2))
            await answer.read()
        assert len(e.connections) == len(pd.connections) == 1


async def test_only_one_pairing_serves_a_request() -> None:
    old = [encoder("e-old", pairing="old"), decoder("pd-old", pairing="old")]
    new = [encoder("e-new", pairing="new"), decoder("pd-new", pairing="new")]
    async with proxy(*old, *new) as p:
        for number in range(8):
            answer = await p.chat(image(f"data:image/png;base64,AA{number}="))
            assert answer.headers["x-epd-encoders"].split("-")[1] == answer.headers["x-epd-prefill"].split("-")[1]


async def test_encoders_that_do_not_know_the_model_show_with_what_to_do() -> None:
    unknown = status(404, {"error": {"message": "no such model", "type": "NotFoundError", "code": 404}})
    async with proxy(encoder("e0", unknown), decoder()) as p:
        answer = await p.chat(image())
        assert (answer.status, answer.headers["x-epd-encode"]) == (200, "fallback")
        topology = await (await p.admin.get("/topology")).json()
        message = (
            "encoders answer 404 for the model tiny, which the prefill side serves: start both with the same "
            "--served-model-name"
        )
        assert topology["misconfigured"] == {"p1": {"cause": "unknown-model", "model": "tiny", "message": message}}
        page = await (await p.admin.get("/topology", headers={"accept": "text/html"})).text()
        assert f'<p class="notice">Misconfigured, pairing p1: {message}</p>' in page
        assert '<td class="bad">● misconfigured</td>' in page
        # until they do it
        p.members.replace([])
        assert (await (await p.admin.get("/topology")).json())["misconfigured"] == {}


async def test_the_admin_port_shows_what_is_there() -> None:
    e, pd = encoder(), decoder()
    async with proxy(e, pd) as p:
        await p.chat(image())
        assert (await p.admin.get("/healthz")).status == 200
        assert (await p.admin.get("/readyz")).status == 200
        page = await (await p.admin.get("/metrics")).text()
        for line in (
            'epd_proxy_members{epd="demo",namespace="ns",ready="true",role="encode"} 1.0',
            'epd_proxy_in_flight{epd="demo",namespace="ns",role="proxy"} 0.0',
            'epd_proxy_ejected_members{epd="demo",namespace="ns",role="encode"} 0.0',
            'epd_proxy_queued{epd="demo",namespace="ns"} 0.0',
            'epd_proxy_requests_total{code="200",epd="demo",namespace="ns",route="/v1/chat/completions"} 1.0',
            'epd_proxy_encode_wanted_items_total{epd="demo",namespace="ns",role="encode"} 1.0',
        ):
            assert line in page.splitlines()
        topology = await (await p.admin.get("/topology")).json()
        assert topology["members"][0] == {
            "name": "e0",
            "role": "encode",
            "ready": True,
            "health": "healthy",
            "pairing": "p1",
            "modelVersion": "v1-tiny-0123456789ab",
            "address": e.address,
            "inFlight": 0,
            "begun": 1,
        }
        assert (topology["queued"], topology["inFlight"], topology["totals"]["requests"]) == (0, 0, 1)
        page = await p.admin.get("/topology", headers={"accept": "text/html,*/*;q=0.8"})
        assert (page.content_type, page.headers["vary"]) == ("text/html", "accept")
        assert "<code>e0</code>" in await page.text()
        state = await (await p.admin.get("/status")).json()
        assert state["queued"] == 0
        assert state["ready"] == {"encode": 1, "prefill-decode": 1}
        assert state["encodes"] == {"encoded": 1}
        p.data_port.draining = True
        assert (await p.admin.get("/readyz")).status == 503


async def test_it_is_not_ready_before_the_engines_were_listed() -> None:
    async with proxy() as p:
        # listed, and there are none: ready, or nobody would hear what is missing
        assert (await p.admin.get("/readyz")).status == 200
        p.members.synced = False
        assert (await p.admin.get("/readyz")).status == 503
        assert (await p.admin.get("/healthz")).status == 200


async def test_invalid_bytes_in_answers_stay_as_they_are() -> None:
    body = b'{"transfer_params": not json'

    async def behave(engine: object, request: object, document: object) -> object:
        return stubs.web.Response(body=body, content_type="application/json")

    async with proxy(decoder(behave=behave)) as p:  # type: ignore[arg-type] # the stub needs none of its arguments
        answer = await p.http.post(CHAT, data=json.dumps({"messages": []}))
        assert await answer.read() == body
