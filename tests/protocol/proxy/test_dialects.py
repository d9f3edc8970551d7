"""Requests of other dialects than chat, and large ones, over sockets: what encoders and the prefill side get."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import pytest

from protocol.proxy.dialectengines import Engine, engines, stores
from protocol.proxy.proxies import Proxy, proxy
from protocol.proxy.stubs import image, status, text

PICTURE = base64.b64encode(random.Random(0).randbytes(300_000)).decode()
URL = f"data:image/png;base64,{PICTURE}"


def primed(engine: Engine) -> list[Any]:
    assert engine.paths == ["/v1/chat/completions"]
    [primer] = engine.requests
    [message] = primer["messages"]
    return list(message["content"])


async def test_a_large_picture_gets_where_a_small_one_does() -> None:
    e, pd = engines()
    async with proxy(e, pd) as served:
        for _ in range(2):
            response = await served.chat(text("before"), image(URL), text(";base64,"), model="m")
            assert response.status == 200
    [first, second] = pd.requests
    assert first == second
    [before, sent, after] = first["messages"][0]["content"]
    assert (before, after) == (text("before"), text(";base64,"))
    assert sent == {**image(URL), "uuid": sent["uuid"]}
    for primer in e.requests:
        assert primer["messages"][0]["content"] == [sent]


RESPONSES = {"model": "m", "input": [{"role": "user", "content": [{"type": "input_image", "image_url": URL}]}]}
SOURCE = {"type": "base64", "media_type": "image/png", "data": PICTURE}
MESSAGES = {
    "model": "m",
    "max_tokens": 5,
    "messages": [{"role": "user", "content": [{"type": "image", "source": SOURCE}]}],
}


@pytest.mark.parametrize(
    ("path", "document"), [("/v1/responses", RESPONSES), ("/v1/messages", MESSAGES)], ids=["responses", "messages"]
)
async def test_media_of_other_dialects_are_primed_in_chat_and_go_on_as_they_were(
    path: str, document: dict[str, Any]
) -> None:
    e, pd = engines()
    async with proxy(e, pd) as served, served.http.post(f"{path}?beta=true", json=document) as response:
        assert response.status == 200
        assert (response.headers["x-epd-encode"], response.headers["x-epd-items"]) == ("encoded", "c" * 64)
    assert primed(e) == [image(URL)]
    assert pd.paths == [path]
    [sent] = pd.requests
    sent.pop("request_id", None)
    assert sent == document


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("/v1/messages/count_tokens", MESSAGES),
        ("/tokenize", {"messages": [{"role": "user", "content": [image(URL)]}]}),
        ("/detokenize", {"tokens": [1, 2]}),
        ("/v1/embeddings", {"input": [{"role": "user", "content": [image(URL)]}]}),
        ("/pooling", {"input": "x"}),
        ("/score", {"queries": "x", "documents": [{"content": [image(URL)]}]}),
        ("/v2/rerank", {"query": "x", "documents": ["y"]}),
        ("/v1/completions", {"prompt": "x"}),
    ],
)
async def test_what_needs_no_encoder_goes_to_the_prefill_side_alone(path: str, document: dict[str, Any]) -> None:
    e, pd = engines()
    async with proxy(e, pd) as served, served.http.post(path, json=document) as response:
        assert response.status == 200
        assert "kv_transfer_params" not in await response.json()
    assert (e.requests, pd.paths, pd.requests) == ([], [path], [document])


@pytest.mark.parametrize("path", ["/invocations", "/inference/v1/generate", "/collective_rpc", "/v1/responses/x/y"])
async def test_other_routes_reach_no_engine(path: str) -> None:
    e, pd = engines()
    async with proxy(e, pd) as served, served.http.post(path, json={}) as response:
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "route_not_found"
    assert (e.paths, pd.paths) == ([], [])


async def created(served: Proxy, **fields: Any) -> dict[str, Any]:
    async with served.http.post("/v1/responses", json={"input": "x", "request_id": "resp_1", **fields}) as response:
        assert response.status == 200
        return dict(await response.json())


async def test_a_stored_response_is_asked_of_the_engine_that_made_it() -> None:
    engines = stores()
    async with proxy(*engines) as served:
        made = [await created(served) for _ in range(6)]
        assert len({response["id"] for response in made}) == 6
        for response in made:
            [maker] = [engine for engine in engines if engine.name == response["by"]]
            maker.paths.clear()
            target = f"/v1/responses/{response['id']}"
            for method, path in (("GET", f"{target}?stream=false"), ("POST", f"{target}/cancel"), ("DELETE", target)):
                async with served.http.request(method, path) as answer:
                    assert (answer.status, answer.headers["x-epd-prefill"]) == (200, maker.name)
            async with served.http.head(target) as answer:
                # the engine is asked as for GET
                assert (answer.status, int(answer.headers["content-length"]) > 0, await answer.read()) == (
                    200,
                    True,
                    b"",
                )
            assert maker.paths == [f"{target}?stream=false", f"{target}/cancel", target, target]
            assert (await created(served, previous_response_id=response["id"]))["by"] == maker.name


async def test_no_other_engine_goes_on_from_a_stored_response() -> None:
    engines = stores()
    async with proxy(*engines) as served:
        response = await created(served)
        [maker] = [engine for engine in engines if engine.name == response["by"]]
        maker.behave = status(500, {"error": {"message": "m"}})
        follow = {"input": "x", "previous_response_id": response["id"]}
        async with served.http.post("/v1/responses", json=follow) as answer:
            assert answer.status == 500
        served.members.replace(engine.member() for engine in engines if engine is not maker)
        for method, path, body in (
            ("POST", "/v1/responses", follow),
            ("GET", f"/v1/responses/{response['id']}", None),
        ):
            async with served.http.request(method, path, json=body) as answer:
                assert answer.status == 400
                assert (await answer.json())["error"]["code"] == "response_not_found"
        assert [len(engine.requests) for engine in engines if engine is not maker] == [0, 0]


async def test_streamed_responses_have_an_id_that_leads_back_and_no_transfer_fields() -> None:
    [engine, *_] = stores()
    async with proxy(engine) as served:
        body = {"input": "x", "stream": True}
        async with served.http.post("/v1/responses", json=body) as response:
            data = (await response.text()).partition("data: ")[2]
        assert json.loads(data) == {"type": "response.completed", "response": {"id": engine.requests[0]["request_id"]}}
