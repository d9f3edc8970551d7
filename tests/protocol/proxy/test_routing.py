"""Which engines requests meet, over sockets: affinity, prefill and decode as two, connectors that push."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from epd.proxy.affinity import Affinity
from epd.proxy.connectors import Connector
from epd.proxy.media import MediaPolicy
from epd.proxy.stored import new_id
from protocol.proxy.proxies import proxy
from protocol.proxy.stubs import (
    IN_STREAM_ERROR,
    Behaviour,
    StubEngine,
    decoder,
    encode,
    encoder,
    generate,
    image,
    status,
    text,
)

ANY_HOST = MediaPolicy(allowed_domains=frozenset({"*"}))

FOUR = [f"pd{n}" for n in range(4)]


@pytest.mark.parametrize("affinity", [Affinity.SESSION, Affinity.PREFIX])
async def test_requests_that_belong_together_meet_one_engine(affinity: Affinity) -> None:
    async with proxy(encoder(), *[decoder(name) for name in FOUR], affinity=affinity) as p:
        met: dict[str, set[str]] = {}
        for name in ("a", "b", "c", "d", "e", "f") * 3:
            # in a session any text goes; without one the beginning of the prompt counts
            content = [image(), text("Why?")] if affinity is Affinity.SESSION else [image(), text(f"What is {name}?")]
            answer = await p.chat(*content, headers={"x-session-id": name})
            assert answer.status == 200
            met.setdefault(name, set()).add(answer.headers["x-epd-prefill"])
        assert {len(engines) for engines in met.values()} == {1}
        assert len(set.union(*met.values())) > 1


async def test_a_session_goes_on_elsewhere_when_its_engine_is_gone() -> None:
    engines = [decoder(name) for name in FOUR]
    async with proxy(encoder(), *engines, affinity=Affinity.SESSION) as p:
        first = (await p.chat(text(), session_id="s")).headers["x-epd-prefill"]
        left = [engine.member() for engine in engines if engine.name != first]
        p.members.replace(left)
        others = {(await p.chat(text(), session_id="s")).headers["x-epd-prefill"] for _ in range(4)}
        assert len(others) == 1
        p.members.replace(engine.member() for engine in engines)
        assert (await p.chat(text(), session_id="s")).headers["x-epd-prefill"] == first


@pytest.mark.parametrize("affinity", Affinity)
async def test_stored_responses_are_found_with_any_affinity(affinity: Affinity) -> None:
    async with proxy(encoder(), decoder(), affinity=affinity) as p:
        for headers in ({}, {"x-session-id": "s"}):
            answer = await p.http.get(f"/v1/responses/{new_id('pd0')}", headers=headers)
            # the engine's own answer, which stores nothing
            assert (answer.status, answer.headers.get("x-epd-prefill")) == (404, "pd0")


@dataclass
class Fabric:
    """What was pushed: by the address of an engine, the key of each transfer, until the request that needs it is over.

    Engines behave as vLLM's ECMooncakeConnector has them (mooncake/scheduler.py), but for the time that one waits.
    """

    landed: dict[str, dict[str, str]] = field(default_factory=dict)
    told: list[tuple[str, int]] = field(default_factory=list)
    """Of each primer, whom it pushed to, and how much."""

    async def encode(self, engine: StubEngine, request: web.Request, document: dict[str, Any]) -> web.StreamResponse:
        params = document["ec_transfer_params"]
        transfers = self.landed.setdefault(params["consumer_zmq"], {})
        found: dict[str, dict[str, Any]] = {}
        for index, identifier in enumerate(identifiers(document)):
            transfer = params["ec_items"][index]["transfer_id"]
            assert all(transfer not in known for known in self.landed.values())
            transfers[transfer] = identifier
            entry = found.setdefault(identifier, {"item_indices": [], "metadata": {"image_grid_thw": [1, 8, 8]}})
            entry["item_indices"].append(index)
            entry["transfer_id"] = transfer
        self.told.append((params["consumer_zmq"], len(params["ec_items"])))
        return web.json_response({"choices": [{"message": {"content": ""}}], "ec_transfer_params": found})

    def engine(self, name: str, behave: Behaviour = generate) -> StubEngine:
        address = f"tcp://{name}:14579"

        async def answer(engine: StubEngine, request: web.Request, document: dict[str, Any]) -> web.StreamResponse:
            items = document.get("ec_transfer_params", {}).get("ec_items", [])
            transfers = self.landed.setdefault(address, {})
            there = all(
                transfers.get(_transfer_of(items, index, identifier)) == identifier
                for index, identifier in enumerate(identifiers(document))
            )
            for item in items:
                transfers.pop(item["transfer_id"], None)
            return await (behave if there else status(500, IN_STREAM_ERROR))(engine, request, document)

        return decoder(name, answer, push_address=address)


def identifiers(document: dict[str, Any]) -> list[str]:
    """The keys of the media, in prompt order."""
    parts = [part for message in document["messages"] for part in message["content"] if part["type"] != "text"]
    return [part.get("uuid") or f"content-of-{part['image_url']['url']}" for part in parts]


def _transfer_of(items: list[dict[str, str]], index: int, identifier: str) -> str:
    """Find a transfer as `ECMooncakeScheduler._request_transfer_id` does."""
    if index < len(items) and items[index].get("mm_hash") in (None, identifier):
        return items[index]["transfer_id"]
    return next((item["transfer_id"] for item in items if item.get("mm_hash") == identifier), "")


def picture(name: str) -> dict[str, Any]:
    return image(f"data:image/png;base64,{name}")


@pytest.mark.parametrize("rewrite", [False, True])
async def test_embeddings_are_pushed_to_the_engine_that_answers(rewrite: bool) -> None:
    fabric = Fabric()
    engines = [encoder(name, fabric.encode) for name in ("e0", "e1")]
    async with proxy(
        *engines, *map(fabric.engine, FOUR), connector=Connector.MOONCAKE, rewrite=rewrite, media=ANY_HOST
    ) as p:
        names = ["AAAA", "BBBB", "CCCC", "AAAA", "DDDD"]
        content = [picture(names[0]), text(), *map(picture, names[1:]), image("https://a.example/1.png")]
        answers = await asyncio.gather(*[p.chat(*content, stream=bool(n % 2)) for n in range(12)])
        assert [(answer.status, answer.headers["x-epd-encode"]) for answer in answers] == [(200, "encoded")] * 12
        bodies = [await answer.read() for answer in answers]
        # a transfer is named by nobody but the request that it is for, and nothing is left
        assert not any(b"transfer" in body for body in bodies)
        assert sum(amount for _, amount in fabric.told) == 12 * 5
        assert set(map(tuple, map(dict.items, fabric.landed.values()))) == {()}
        assert p.load.counts() == {}


async def test_another_engine_gets_a_push_of_its_own() -> None:
    fabric = Fabric()
    ill, well = fabric.engine("pd0", status(500, IN_STREAM_ERROR)), fabric.engine("pd1")
    async with proxy(encoder(behave=fabric.encode), ill, well, connector=Connector.MOONCAKE) as p:
        answers = [await p.chat(picture(f"AA{n}=")) for n in range(8)]
        assert {(answer.status, answer.headers["x-epd-prefill"]) for answer in answers} == {(200, "pd1")}
        retried = [address for address, _ in fabric.told].count("tcp://pd0:14579")
        assert (len(fabric.told), len(ill.requests)) == (8 + retried, retried)
        assert retried > 0


async def test_an_engine_that_is_pushed_to_never_encodes() -> None:
    fabric = Fabric()
    pd = fabric.engine("pd0")
    refusal = {"error": {"message": "no picture", "type": "BadRequestError"}}
    for behave, code in ((status(500, {}), 503), (status(400, refusal), 400), (encode, 503)):
        # the last says nothing of transfers: what it answers is not what it was asked for
        async with proxy(encoder(behave=behave), pd, connector=Connector.MOONCAKE) as p:
            assert (await p.chat(image())).status == code
            assert (pd.requests, p.load.counts()) == ([], {})
            assert (await p.chat(text())).status == 200
            pd.requests.clear()
