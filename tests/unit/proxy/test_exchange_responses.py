"""Responses are continued, read and cancelled where they were made."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from epd.proxy.arrival import Arrival
from epd.proxy.connectors import Connector
from epd.proxy.errors import InvalidRequestError, OverloadedError
from epd.proxy.settings import Limits
from epd.proxy.stored import RESPONSES_PATH, made_by, new_id
from unit.proxy.engines import arrival, bench, settle
from unit.proxy.exchanges import D0, D1, E0


async def test_the_engine_that_made_a_response_is_told_what_encoders_announce() -> None:
    b = bench(E0, D0, D1, connector=Connector.HOST_MEMORY)
    b.load.begin("d1")
    request = arrival("AAAA")
    request = replace(request, request=replace(request.request, previous_response_id=new_id("d1")))
    reply = await b.exchange.answer(request)
    [(name, body)] = b.engines.calls[1:]
    assert (reply.status, name, "ec_transfer_params" in body) == (200, "d1", True)


async def test_a_tenant_has_its_own_responses_and_no_others() -> None:
    b = bench(D0, D1)
    engines_id = new_id("d1", "acme")
    for path, previous in ((f"/v1/responses/{engines_id}", None), (RESPONSES_PATH, engines_id)):
        request = arrival()
        request = replace(request, path=path, request=replace(request.request, previous_response_id=previous))

        async def ask(tenant: str, request: Arrival = request, stored: bool = previous is None) -> int:
            sent = replace(request, tenant=tenant)
            reply = await (b.exchange.stored(sent, engines_id) if stored else b.exchange.answer(sent))
            return reply.status

        assert await ask("acme") == 200
        for other in ("beta", ""):
            with pytest.raises(InvalidRequestError) as refusal:
                await ask(other)
            assert refusal.value.error_code == "response_not_found"
    # and what was made for it leads back for it alone
    [(_, asked), (name, followed)] = b.engines.calls
    assert ("request_id" in asked, name) == (False, "d1")
    assert made_by(followed["request_id"], [D0, D1], "acme") is D1
    with pytest.raises(InvalidRequestError):
        made_by(followed["request_id"], [D0, D1])


def continued(engine: str, *pictures: str) -> Arrival:
    request = arrival(*pictures)
    return replace(request, request=replace(request.request, previous_response_id=new_id(engine)))


@pytest.mark.parametrize("pictures", [(), ("AAAA",)], ids=["text", "picture"])
async def test_a_response_is_continued_once_its_engine_has_room(pictures: tuple[str, ...]) -> None:
    b = bench(E0, D0, D1, limits=Limits(max_in_flight_per_engine=1))
    b.load.begin("d0")
    waiting = asyncio.create_task(b.exchange.answer(continued("d0", *pictures)))
    while not b.exchange.admission.waiting:  # noqa: ASYNC110 - there is no Event
        await asyncio.sleep(0)
    # who may go elsewhere does not stand behind it
    b.load.begin("d1")
    other = asyncio.create_task(b.exchange.answer(arrival()))
    await settle()
    assert b.exchange.admission.waiting == 2
    b.load.end("d1")
    assert (await other).headers["x-epd-prefill"] == "d1"
    assert (b.exchange.admission.waiting, waiting.done()) == (1, False)
    b.load.end("d0")
    assert (await waiting).headers["x-epd-prefill"] == "d0"
    assert (b.exchange.admission.waiting, b.load.counts()) == (0, {})


async def test_a_response_whose_engine_goes_meanwhile_is_gone() -> None:
    b = bench(D0, D1, limits=Limits(max_in_flight_per_engine=1))
    b.load.begin("d0")
    waiting = asyncio.create_task(b.exchange.answer(continued("d0")))
    await settle()
    b.members.replace([D1])
    with pytest.raises(InvalidRequestError) as refusal:
        await waiting
    assert (refusal.value.error_code, b.engines.called()) == ("response_not_found", [])


async def test_a_response_can_be_cancelled_while_its_engine_is_full() -> None:
    b = bench(D0, limits=Limits(max_in_flight_per_engine=1, queue=0))
    b.load.begin("d0")
    made = new_id("d0")
    reply = await b.exchange.stored(replace(arrival(), path=f"/v1/responses/{made}/cancel"), made)
    assert (reply.status, b.engines.called()) == (200, ["d0"])
    with pytest.raises(OverloadedError) as refusal:
        await b.exchange.answer(continued("d0"))
    assert refusal.value.error_code == "queue_full"
