"""Requests that go to the prefill side without their media, over sockets: what is sent, and what follows a failure."""

from __future__ import annotations

import asyncio
import base64
import tracemalloc
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from epd.proxy import requests
from epd.proxy.media import MediaPolicy
from protocol.proxy import stubs
from protocol.proxy.proxies import proxy
from protocol.proxy.stubs import PNG, StubEngine, decoder, encoder, image, text, until

ERROR = {"error": {"message": "Internal server error", "type": "InternalServerError", "code": 500}}
GRID = {"image_grid_thw": [1, 8, 8]}
COUNT = {"audio_num_tokens": [7]}
OTHER = "data:image/png;base64,AAAA"
SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
KEY = "c" * 64


def reports(*metadata: dict[str, Any], shift: int = 0) -> stubs.Behaviour:
    """An encoder that says `metadata` of its items, in turn; an item without a `uuid` gets KEY."""

    async def behave(engine: StubEngine, request: web.Request, document: dict[str, Any]) -> web.StreamResponse:
        parts = document["messages"][0]["content"]
        kinds = {"image_url": GRID, "input_audio": COUNT}
        said = {
            part.get("uuid", KEY): {
                "item_indices": [place + shift],
                "metadata": metadata[place] if metadata else kinds[part["type"]],
            }
            for place, part in enumerate(parts)
        }
        return web.json_response({"choices": [{"message": {"content": ""}}], "ec_transfer_params": said})

    return behave


def fails_without_media(fault: stubs.Behaviour) -> stubs.Behaviour:
    """A prefill side that has `fault` for requests without media."""

    async def behave(engine: StubEngine, request: web.Request, document: dict[str, Any]) -> web.StreamResponse:
        usual = fault if "image_embeds" in types(document) else stubs.generate
        return await usual(engine, request, document)

    return behave


def types(document: dict[str, Any]) -> list[str]:
    return [part["type"] for part in document["messages"][0]["content"]]


async def test_the_prefill_side_gets_metadata_and_the_rest_as_it_was() -> None:
    e, pd = encoder(behave=reports()), decoder()
    async with proxy(e, pd, rewrite=True) as p:
        answer = await p.chat(
            text("What is"), image(), text("beside"), image(OTHER), image(), SOUND, temperature=0.5, stop=["x"]
        )
        assert (answer.status, answer.headers["x-epd-encode"]) == (200, "encoded")
        names = [part["uuid"] for sent in e.requests for part in sent["messages"][0]["content"]]
        assert answer.headers["x-epd-items"] == ",".join(names)
        first, second, third = names
        assert pd.requests == [
            {
                "model": "tiny",
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            text("What is"),
                            {"type": "image_embeds", "image_embeds": GRID, "uuid": first},
                            text("beside"),
                            {"type": "image_embeds", "image_embeds": GRID, "uuid": second},
                            {"type": "image_embeds", "image_embeds": GRID, "uuid": first},
                            {"type": "audio_embeds", "audio_embeds": COUNT, "uuid": third},
                        ],
                    }
                ],
                "temperature": 0.5,
                "stop": ["x"],
            }
        ]
        assert p.value("epd_proxy_rewritten_requests_total") == 1
        page = await (await p.admin.get("/metrics")).text()
        assert 'epd_proxy_rewritten_requests_total{epd="demo",namespace="ns"} 1.0' in page
        assert (await (await p.admin.get("/status")).json())["resends"] == {}


async def test_a_url_goes_on_as_the_content_that_the_encoder_saw() -> None:
    pd, media = decoder(), MediaPolicy(allowed_domains=frozenset({"img.example.com"}))
    async with proxy(encoder(behave=reports()), pd, rewrite=True, media=media) as p:
        assert (await p.chat(image("https://img.example.com/a.png"))).status == 200
        [part] = pd.requests[0]["messages"][0]["content"]
        assert part == {"type": "image_embeds", "image_embeds": GRID, "uuid": KEY}


async def swaps(engine: StubEngine, request: web.Request, document: dict[str, Any]) -> web.StreamResponse:
    """An encoder that says of each of two items what is true of the other."""
    names = [part["uuid"] for part in document["messages"][0]["content"]]
    said = {name: {"item_indices": [1 - place], "metadata": GRID} for place, name in enumerate(names)}
    return web.json_response({"choices": [{"message": {"content": ""}}], "ec_transfer_params": said})


KEPT: dict[str, tuple[stubs.Behaviour, dict[str, Any], dict[str, Any]]] = {
    # name: what the encoder does, fields of the request, settings
    "off, as by default": (reports(), {}, {"rewrite": False}),
    "no metadata": (stubs.encode, {}, {}),
    "no metadata of one": (reports(GRID, {}), {}, {}),
    "fields that differ": (reports(GRID, COUNT), {}, {}),
    "wrong indices": (reports(shift=1), {}, {}),
    "swapped indices": (swaps, {}, {}),
    "no report": (stubs.status(200, {"choices": []}), {}, {}),
    "no JSON": (stubs.streams(b"hello"), {}, {}),
    "an encoder that fails": (stubs.status(500, ERROR), {}, {}),
    "processing options": (reports(), {"mm_processor_kwargs": {"min_pixels": 1}}, {}),
    "options of reading": (reports(), {"media_io_kwargs": {"image": {}}}, {}),
}


@pytest.mark.parametrize(("behave", "fields", "settings"), KEPT.values(), ids=KEPT.keys())
async def test_media_are_kept(behave: stubs.Behaviour, fields: dict[str, Any], settings: dict[str, Any]) -> None:
    pd = decoder()
    async with proxy(encoder(behave=behave), pd, **{"rewrite": True, **settings}) as p:
        assert (await p.chat(text(), image(), image(OTHER), **fields)).status == 200
        [sent] = pd.requests
        assert types(sent) == ["text", "image_url", "image_url"]
        assert sent["messages"][0]["content"][1]["image_url"] == {"url": PNG}
        assert p.value("epd_proxy_rewritten_requests_total") == 0


FAULTS = {
    "500": (stubs.status(500, ERROR), "status"),
    "503": (stubs.status(503, ERROR), "status"),
    "400": (stubs.status(400, ERROR), "status"),
    "in-stream error": (
        stubs.streams(stubs.ROLE_CHUNK, stubs.event(stubs.IN_STREAM_ERROR), stubs.DONE),
        "stream-error",
    ),
    "dies before its head": (stubs.dies_after(), "disconnected"),
    "dies after the role chunk": (stubs.dies_after(stubs.ROLE_CHUNK), "disconnected"),
}


@pytest.mark.parametrize(("fault", "cause"), FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("others", [0, 1, 2])
async def test_a_request_that_fails_without_media_gets_them_once(
    fault: stubs.Behaviour, cause: str, others: int
) -> None:
    engines = [decoder(f"pd{n}", behave=fails_without_media(fault)) for n in range(1 + others)]
    async with proxy(encoder(behave=reports()), *engines, rewrite=True) as p:
        answer = await p.chat(text(), image(), stream=True)
        assert answer.status == 200
        expected = [stubs.ROLE_CHUNK, stubs.content_chunk("re"), stubs.content_chunk("d"), stubs.DONE]
        assert await answer.read() == b"".join(expected)
        assert answer.headers["x-epd-encode"] == "fallback"
        sent = [types(request) for engine in engines for request in engine.requests]
        assert sorted(sent) == [["text", "image_embeds"], ["text", "image_url"]]
        # by another engine, where there is one
        assert sum(1 for engine in engines if engine.requests) == min(2, 1 + others)
        for metric in ("retries", "resends"):
            assert p.metrics.totals()[metric] == {cause: 1}
        assert p.value("epd_proxy_fallbacks_total", reason="resent") == 1
        assert p.load.counts() == {}


@pytest.mark.parametrize(("fault", "status"), [("500", 500), ("dies before its head", 503)])
async def test_a_request_that_fails_with_media_too_fails_on_two_engines_of_all(fault: str, status: int) -> None:
    engines = [decoder(f"pd{n}", behave=FAULTS[fault][0]) for n in range(3)]
    strangers = [decoder(f"pd{n}", behave=FAULTS[fault][0], pairing="p2") for n in (8, 9)]
    async with proxy(encoder(behave=reports()), *engines, *strangers, rewrite=True) as p:
        assert (await p.chat(image())).status == status
        sent = [types(request) for engine in engines + strangers for request in engine.requests]
        assert sorted(sent) == [["image_embeds"], ["image_url"]]
        assert all(engine.requests == [] for engine in strangers)


async def test_after_the_first_content_nothing_is_sent_again() -> None:
    chunks = (stubs.ROLE_CHUNK, stubs.content_chunk("re"))
    pd = decoder(behave=stubs.dies_after(*chunks))
    async with proxy(encoder(behave=reports()), pd, decoder("pd1", behave=pd.behave), rewrite=True) as p:
        answer = await p.chat(image(), stream=True)
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
        assert p.metrics.totals()["resends"] == {}


async def test_a_client_that_leaves_between_the_two_has_nothing_sent_again() -> None:
    first, second = decoder("pd0", behave=stubs.hangs), decoder("pd1", behave=stubs.hangs)
    async with proxy(encoder(behave=reports()), first, second, rewrite=True) as p:
        p.load.begin("pd1")
        task = asyncio.create_task(p.chat(image()))
        await first.started.wait()
        task.cancel()
        await first.aborted.wait()
        await p.data_port.idle.wait()
        assert second.requests == []
        assert p.load.counts() == {"pd1": 1}


async def test_a_client_that_leaves_during_the_second_aborts_it() -> None:
    pd = decoder(behave=fails_without_media(stubs.status(500, ERROR)))
    other = decoder("pd1", behave=stubs.hangs)
    async with proxy(encoder(behave=reports()), pd, other, rewrite=True) as p:
        p.load.begin("pd1")
        task = asyncio.create_task(p.chat(image()))
        await other.started.wait()
        task.cancel()
        await other.aborted.wait()
        await p.data_port.idle.wait()
        assert p.load.counts() == {"pd1": 1}


def bodies_held() -> int:
    """Bytes that were taken by receiving, reading and writing bodies and are not given back."""
    places = (str(Path(requests.__file__).with_name("*.py")), asyncio.selector_events.__file__)
    taken = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, place) for place in places])
    return sum(statistic.size for statistic in taken.statistics("filename"))


async def test_media_are_kept_until_the_first_content_and_no_longer() -> None:
    release, held = asyncio.Event(), 4 << 20
    picture = "data:image/png;base64," + base64.b64encode(bytes(held)).decode()

    async def behave(engine: StubEngine, request: web.Request, document: dict[str, Any]) -> web.StreamResponse:
        assert types(document) == ["image_embeds"]
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(stubs.ROLE_CHUNK)
        await release.wait()
        await response.write(stubs.content_chunk("re"))
        await asyncio.Event().wait()
        raise AssertionError

    e, pd = encoder(behave=reports()), decoder(behave=behave)
    async with proxy(e, pd, rewrite=True, room=1 << 30) as p:
        tracemalloc.start()
        try:
            waiting = asyncio.create_task(p.chat(image(picture), stream=True))
            await until(lambda: len(pd.requests) == 1)
            e.requests.clear()
            assert bodies_held() > held
            assert p.data_port.bodies.taken > held
            release.set()
            answer = await waiting
            assert answer.status == 200
            assert bodies_held() < held / 10
            assert p.data_port.bodies.taken == 0
            answer.close()
        finally:
            tracemalloc.stop()
