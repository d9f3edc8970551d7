"""Requests whose embeddings are pushed: the engine is chosen first, and each try has a push of its own."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from epd.proxy.connectors import Connector
from epd.proxy.errors import EncoderUnavailableError, OverloadedError, UnavailableError
from epd.proxy.settings import EncoderFailurePolicy, Limits
from epd.proxy.stored import new_id
from epd.proxy.transport import Call, Cause
from unit.proxy.engines import (
    HANG,
    Bench,
    Engines,
    Scripted,
    arrival,
    bench,
    broken,
    document,
    joined,
    member,
    settle,
    until_called,
)

E0, E1 = member("e0"), member("e1")
D0, D1 = (replace(member(name), push_address=f"tcp://{name}:1") for name in ("d0", "d1"))
ILL = document({}, 500)


@dataclass
class Pushing(Engines):
    """Encoders that push: `pushed` has whom each primer named, and how many transfers."""

    pushed: list[tuple[str, int]] = field(default_factory=list)

    def _usual(self, name: str, call: Call) -> Scripted:
        if not name.startswith("e"):
            return super()._usual(name, call)
        body = json.loads(joined(call.body))
        params, parts = body["ec_transfer_params"], body["messages"][0]["content"]
        self.pushed.append((params["consumer_zmq"], len(params["ec_items"])))
        return document(
            {
                "ec_transfer_params": {
                    part["uuid"]: {
                        "item_indices": [n],
                        "transfer_id": params["ec_items"][n]["transfer_id"],
                        "metadata": {"image_grid_thw": [1, 8, 8]},
                    }
                    for n, part in enumerate(parts)
                }
            }
        )


def pushing(*members: Any, **fields: Any) -> tuple[Bench, Pushing]:
    engines = Pushing()
    return bench(*members, engines=engines, connector=Connector.MOONCAKE, **fields), engines


def transfers(body: dict[str, Any]) -> list[str]:
    return [item["transfer_id"] for item in body["ec_transfer_params"]["ec_items"]]


async def test_the_engine_that_answers_is_the_one_that_was_pushed_to() -> None:
    b, engines = pushing(E0, D0, D1)
    b.load.begin("d0", 3)
    reply = await b.exchange.answer(arrival("AAAA", "BBBB"))
    assert (reply.status, reply.headers["x-epd-encode"], engines.pushed) == (200, "encoded", [("tcp://d1:1", 2)])
    [(_, primer), (name, body)] = engines.calls
    assert (name, transfers(body)) == ("d1", transfers(primer))
    assert all(len(item["mm_hash"]) == 64 for item in body["ec_transfer_params"]["ec_items"])
    assert b.load.counts() == {"d0": 3}


async def test_its_place_is_taken_while_items_are_encoded() -> None:
    b, engines = pushing(E0, D0, D1)
    engines.gate = asyncio.Event()
    tasks = [asyncio.create_task(b.exchange.answer(arrival(f"AA{n}A"))) for n in range(2)]
    await until_called(engines, 2)
    assert {b.load["d0"], b.load["d1"]} == {1}
    tasks[0].cancel()
    await settle()
    assert sorted([b.load["d0"], b.load["d1"]]) == [0, 1]
    engines.gate.set()
    await tasks[1]
    assert b.load.counts() == {}


async def test_encoded_items_are_no_demand_any_more() -> None:
    b, engines = pushing(E0, D0, scripts={"d0": [HANG]})
    task = asyncio.create_task(b.exchange.answer(arrival("AAAA")))
    await until_called(engines, 1)
    assert b.value("epd_proxy_encode_demand", role="encode") == 1
    await until_called(engines, 2)
    assert b.value("epd_proxy_encode_demand", role="encode") == 0
    task.cancel()
    await settle()
    assert b.load.counts() == {}


@pytest.mark.parametrize("failure", [ILL, broken(Cause.REFUSED), broken(Cause.DISCONNECTED)])
async def test_another_engine_has_everything_encoded_again(failure: Any) -> None:
    b, engines = pushing(E0, D0, D1, scripts={"d0": [failure]})
    b.load.begin("d1", 3)
    reply = await b.exchange.answer(arrival("AAAA"))
    assert (reply.status, reply.headers["x-epd-prefill"]) == (200, "d1")
    assert engines.pushed == [("tcp://d0:1", 1), ("tcp://d1:1", 1)]
    [(_, first), (_, refused), (_, second), (_, answered)] = engines.calls
    assert transfers(refused) == transfers(first) != transfers(second) == transfers(answered)
    assert b.load.counts() == {"d1": 3}


async def test_the_same_engine_too_needs_a_new_push() -> None:
    b, engines = pushing(E0, D0, scripts={"d0": [broken(Cause.DISCONNECTED)]})
    assert (await b.exchange.answer(arrival("AAAA"))).status == 200
    assert engines.pushed == [("tcp://d0:1", 1)] * 2


async def test_media_go_along_the_second_time() -> None:
    b, engines = pushing(E0, D0, D1, rewrites=True, scripts={"d0": [ILL]})
    b.load.begin("d1", 3)
    reply = await b.exchange.answer(arrival("AAAA"))
    kinds = [body["messages"][0]["content"][-1]["type"] for name, body in engines.calls if name != "e0"]
    assert (reply.status, reply.headers["x-epd-encode"], kinds) == (200, "encoded", ["image_embeds", "image_url"])
    assert b.metrics.totals()["fallbacks"] == {}


async def test_no_third_engine_is_tried_and_no_encoder_asked_for_it() -> None:
    b, engines = pushing(E0, D0, D1, scripts={"d0": [ILL], "d1": [ILL]})
    assert (await b.exchange.answer(arrival("AAAA"))).status == 500
    assert sorted(engines.pushed) == [("tcp://d0:1", 1), ("tcp://d1:1", 1)]


@pytest.mark.parametrize("policy", list(EncoderFailurePolicy))
async def test_what_could_not_be_encoded_is_sent_to_no_engine(policy: EncoderFailurePolicy) -> None:
    b, engines = pushing(E0, D0, policy=policy, scripts={"e0": [ILL, document({"error": "bad"}, 400)]})
    with pytest.raises(EncoderUnavailableError, match="engines that are pushed to can't encode"):
        await b.exchange.answer(arrival("AAAA"))
    assert (await b.exchange.answer(arrival("AAAA"))).status == 400
    assert (engines.called(), b.load.counts()) == (["e0", "e0"], {})
    assert b.value("epd_proxy_encode_demand", role="encode") == 0


async def test_items_that_can_not_be_encoded_again() -> None:
    usual = Pushing()
    b = bench(E0, D0, D1, engines=usual, connector=Connector.MOONCAKE, scripts={"d0": [ILL], "d1": [ILL]})
    usual.gate = asyncio.Event()
    task = asyncio.create_task(b.exchange.answer(arrival("AAAA")))
    await until_called(usual, 1)
    # the encoder fails from its second primer on
    usual.scripts["e0"] = [ILL]
    usual.gate.set()
    with pytest.raises(EncoderUnavailableError, match="could not be encoded again"):
        await task
    assert b.load.counts() == {}


async def test_the_second_encoder_pushes_under_other_names() -> None:
    b, engines = pushing(E0, E1, D0, scripts={"e0": [ILL], "e1": [ILL]})
    with pytest.raises(EncoderUnavailableError):
        await b.exchange.answer(arrival("AAAA"))
    [(_, first), (_, second)] = engines.calls
    assert first["ec_transfer_params"]["consumer_zmq"] == second["ec_transfer_params"]["consumer_zmq"]
    assert transfers(first) != transfers(second)


async def test_equal_items_are_pushed_to_each_engine() -> None:
    b, engines = pushing(E0, D0, D1)
    engines.gate = asyncio.Event()
    tasks = [asyncio.create_task(b.exchange.answer(arrival("AAAA"))) for _ in range(2)]
    await until_called(engines, 2)
    engines.gate.set()
    await asyncio.gather(*tasks)
    assert sorted(engines.pushed) == [("tcp://d0:1", 1), ("tcp://d1:1", 1)]


async def test_nothing_is_encoded_for_what_finds_no_engine() -> None:
    b, engines = pushing(E0)
    with pytest.raises(UnavailableError):
        await b.exchange.answer(arrival("AAAA"))
    b, engines = pushing(E0, D0, limits=Limits(max_in_flight_per_engine=1, queue=0))
    b.load.begin("d0")
    with pytest.raises(OverloadedError):
        await b.exchange.answer(arrival("AAAA"))
    assert engines.calls == []


async def test_what_only_one_engine_can_answer_is_pushed_to_that() -> None:
    b, engines = pushing(E0, D0, D1)
    given = arrival("AAAA")
    for name in ("d0", "d1"):
        request = replace(given.request, previous_response_id=new_id(name, ""))
        reply = await b.exchange.answer(replace(given, request=request))
        assert reply.headers["x-epd-prefill"] == name
    assert engines.pushed == [("tcp://d0:1", 1), ("tcp://d1:1", 1)]


async def test_text_is_sent_as_ever() -> None:
    b, engines = pushing(E0, D0)
    assert (await b.exchange.answer(arrival())).status == 200
    assert "ec_transfer_params" not in engines.calls[0][1]
