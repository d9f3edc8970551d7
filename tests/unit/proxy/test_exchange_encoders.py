"""Encoders in the course of a request: their failures, what they announce, what is known of the store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from epd.proxy.connectors import Connector
from epd.proxy.errors import EncoderUnavailableError, FallbackLimitError, ProxyError, UnavailableError
from epd.proxy.settings import EncoderFailurePolicy, Limits
from unit.proxy.engines import HANG, arrival, bench, document, member, until_called
from unit.proxy.exchanges import D0, D1, E0, E1, ILL, REFUSED


async def test_items_are_encoded_before_the_prefill_side_is_asked() -> None:
    b = bench(E0, D0)
    reply = await b.exchange.answer(arrival("AAAA"))
    assert b.engines.called() == ["e0", "d0"]
    assert (reply.headers["x-epd-encode"], reply.headers["x-epd-encoders"]) == ("encoded", "e0")
    assert all(answer.closed for answer in b.engines.answers)


async def test_encoded_items_are_no_demand_any_more() -> None:
    b = bench(E0, D0, scripts={"e0": [], "d0": [HANG]})
    task = asyncio.create_task(b.exchange.answer(arrival("AAAA")))
    await until_called(b.engines, 1)
    assert b.value("epd_proxy_encode_demand", role="encode") == 1
    await until_called(b.engines, 2)
    assert b.value("epd_proxy_encode_demand", role="encode") == 0
    task.cancel()


async def test_items_go_to_the_pairing_that_has_an_encoder() -> None:
    b = bench(member("e0", "new"), member("d0", "new"), member("d1", "old"), member("d2", "old"))
    b.load.begin("d0", 5)
    assert (await b.exchange.answer(arrival("AAAA"))).headers["x-epd-prefill"] == "d0"
    assert (await b.exchange.answer(arrival())).headers["x-epd-prefill"] in ("d1", "d2")


async def test_a_pairing_that_goes_while_it_encodes_is_a_fallback() -> None:
    b = bench(member("e0", "old"), member("d0", "old"), member("d9", "new"))
    b.engines.gate = asyncio.Event()
    task = asyncio.create_task(b.exchange.answer(arrival("AAAA")))
    await until_called(b.engines, 1)
    assert b.engines.called() == ["e0"]
    b.members.replace([member("d9", "new")])
    b.engines.gate.set()
    reply = await task
    assert (reply.headers["x-epd-prefill"], reply.headers["x-epd-encode"]) == ("d9", "fallback")
    assert b.value("epd_proxy_fallbacks_total", reason="pairing-gone") == 1


ENCODERS: dict[str, tuple[list[Any], EncoderFailurePolicy, int | type[ProxyError]]] = {
    # name: what both encoders do, policy, status of the reply or the error
    "500, Fallback": ([document({}, 500)] * 2, EncoderFailurePolicy.FALLBACK, 200),
    "400, Fallback": ([document({}, 400)] * 2, EncoderFailurePolicy.FALLBACK, 200),
    "refused, Fallback": ([REFUSED] * 2, EncoderFailurePolicy.FALLBACK, 200),
    "hangs, Fallback": ([HANG] * 2, EncoderFailurePolicy.FALLBACK, 200),
    "500, Fail": ([document({}, 500)] * 2, EncoderFailurePolicy.FAIL, EncoderUnavailableError),
    "refused, Fail": ([REFUSED] * 2, EncoderFailurePolicy.FAIL, EncoderUnavailableError),
    "hangs, Fail": ([HANG] * 2, EncoderFailurePolicy.FAIL, EncoderUnavailableError),
    "400, Fail": ([document({}, 400)] * 2, EncoderFailurePolicy.FAIL, 400),
    "413, Fail": ([document({}, 413)] * 2, EncoderFailurePolicy.FAIL, 413),
    "204, Fail": ([document({}, 204)] * 2, EncoderFailurePolicy.FAIL, EncoderUnavailableError),
}


@pytest.mark.parametrize(("script", "policy", "expected"), ENCODERS.values(), ids=ENCODERS.keys())
async def test_two_encoders_fail_then_the_policy_decides(
    script: list[Any], policy: EncoderFailurePolicy, expected: int | type[ProxyError]
) -> None:
    limits = Limits(encode_seconds=0.02)
    b = bench(E0, E1, member("e2"), D0, policy=policy, limits=limits, scripts={f"e{n}": [script[0]] for n in range(3)})
    if isinstance(expected, int):
        assert (await b.exchange.answer(arrival("AAAA"))).status == expected
    else:
        with pytest.raises(expected):
            await b.exchange.answer(arrival("AAAA"))
    asked = b.engines.called()
    assert len({name for name in asked if name.startswith("e")}) == 2
    assert asked[2:] == (["d0"] if expected == 200 else [])
    assert b.load.counts() == {}
    assert b.value("epd_proxy_encode_demand", role="encode") == 0


async def test_a_partial_failure_is_a_fallback_too() -> None:
    video = arrival("AAAA", "BBBB", "CCCC", "DDDD")
    b = bench(E0, E1, D0, limits=Limits(encode_seconds=0.02))
    b.engines.scripts["e0"] = [document({}, 500)] * 2
    b.engines.scripts["e1"] = [document({"ec_transfer_params": None}), document({}, 500)]
    reply = await b.exchange.answer(video)
    assert reply.headers["x-epd-encode"] == "fallback"
    assert reply.headers["x-epd-encoders"] == "e1"


async def test_fallbacks_are_bounded() -> None:
    b = bench(D0, limits=Limits(max_fallback_encodes=1), scripts={"d0": [HANG]})
    task = asyncio.create_task(b.exchange.answer(arrival("AAAA")))
    await until_called(b.engines, 1)
    with pytest.raises(FallbackLimitError):
        await b.exchange.answer(arrival("BBBB"))
    assert (await b.exchange.answer(arrival())).status == 200
    task.cancel()
    await asyncio.wait([task])
    assert (await b.exchange.answer(arrival("CCCC"))).status == 200


async def test_hinted_items_stay_with_their_pairing() -> None:
    b = bench(E0, D0, member("d9", "q"), rewrites=True, connector=Connector.MANAGED, hint_seconds=60)
    b.load.begin("d9")
    await b.exchange.answer(arrival("AAAA"))
    b.load.end("d9")
    b.load.begin("d0")
    reply = await b.exchange.answer(arrival("AAAA"))
    assert b.engines.called() == ["e0", "d0", "d0"]
    assert reply.headers["x-epd-encoders"] == "e0"


async def test_what_an_encoder_announces_goes_on() -> None:
    b = bench(E0, D0, D1, scripts={"d0": [ILL]}, connector=Connector.HOST_MEMORY)
    b.load.begin("d1")
    await b.exchange.answer(arrival("AAAA"))
    (_, primer), *sent = b.engines.calls
    uuid = primer["messages"][0]["content"][0]["uuid"]
    announced = {uuid: {"item_indices": [0], "metadata": {"image_grid_thw": [1, 8, 8]}}}
    assert [(name, body["ec_transfer_params"]) for name, body in sent] == [("d0", announced), ("d1", announced)]


async def test_another_pairing_is_told_nothing_of_what_encoders_announce() -> None:
    b = bench(E0, D0, member("d9", "q"), scripts={"d0": [ILL]}, connector=Connector.HOST_MEMORY)
    b.load.begin("d9")
    reply = await b.exchange.answer(arrival("AAAA"))
    sent = [(name, "ec_transfer_params" in body) for name, body in b.engines.calls[1:]]
    assert (reply.status, reply.headers["x-epd-encode"], sent) == (200, "fallback", [("d0", True), ("d9", False)])


async def test_items_that_are_known_to_be_in_the_store_are_no_demand_for_encoders() -> None:
    b = bench(E0, D0, connector=Connector.MANAGED, hint_seconds=60)
    await b.exchange.answer(arrival("AAAA", "BBBB"))
    b.engines.gate = asyncio.Event()
    task = asyncio.create_task(b.exchange.answer(arrival("AAAA", "CCCC")))
    await until_called(b.engines, 3)
    assert b.value("epd_proxy_encode_demand", role="encode") == 1
    b.engines.gate.set()
    await task
    assert b.value("epd_proxy_encode_wanted_items_total", role="encode") == 3
    # of another pairing nothing is known, and without an engine nothing is known at all
    b.members.replace([member("e9", "q"), member("d9", "q")])
    await b.exchange.answer(arrival("AAAA"))
    b.members.replace([])
    with pytest.raises(UnavailableError):
        await b.exchange.answer(arrival("AAAA"))
    assert b.value("epd_proxy_encode_wanted_items_total", role="encode") == 5
    assert b.value("epd_proxy_encode_demand", role="encode") == 0
