"""Requests that wait for room at the engines, in their turn."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from epd.proxy.errors import OverloadedError, UnavailableError
from epd.proxy.settings import Limits
from unit.proxy.engines import CONTENT, arrival, bench, settle, streamed, until_called
from unit.proxy.exchanges import D0, D1, E0, ILL


async def test_requests_wait_for_room_and_are_refused_beyond_that() -> None:
    b = bench(D0, limits=Limits(max_in_flight_per_engine=1, queue=1))
    b.engines.gate = asyncio.Event()
    first = asyncio.create_task(b.exchange.answer(arrival()))
    await until_called(b.engines, 1)
    second = asyncio.create_task(b.exchange.answer(arrival()))
    await settle()
    assert (b.exchange.admission.waiting, len(b.engines.calls)) == (1, 1)
    with pytest.raises(OverloadedError):
        await b.exchange.answer(arrival())
    b.engines.gate.set()
    assert [(await task).status for task in (first, second)] == [200, 200]
    assert (b.engines.called(), b.load.counts(), b.exchange.admission.waiting) == (["d0", "d0"], {}, 0)


async def test_a_place_is_held_to_the_end_of_a_stream() -> None:
    b = bench(D0, limits=Limits(max_in_flight_per_engine=1), scripts={"d0": [streamed(CONTENT)]})
    reply = await b.exchange.answer(arrival())
    second = asyncio.create_task(b.exchange.answer(arrival()))
    await settle()
    assert (b.engines.called(), second.done()) == (["d0"], False)
    assert reply.stream is not None
    reply.stream.close()
    await second
    assert b.engines.called() == ["d0", "d0"]


async def test_what_would_find_no_place_is_not_encoded() -> None:
    b = bench(E0, D0, limits=Limits(max_in_flight_per_engine=1, queue=0))
    b.load.begin("d0")
    with pytest.raises(OverloadedError):
        await b.exchange.answer(arrival("AAAA"))
    assert b.engines.called() == []
    b.load.end("d0")
    assert (await b.exchange.answer(arrival("AAAA"))).status == 200


async def test_a_retry_does_not_wait() -> None:
    b = bench(D0, D1, limits=Limits(max_in_flight_per_engine=1, queue=0), scripts={"d0": [ILL]})
    b.load.begin("d1")
    assert (await b.exchange.answer(arrival())).status == 200
    assert b.engines.called() == ["d0", "d1"]


async def test_who_waits_while_the_last_engine_goes_is_told() -> None:
    b = bench(D0, limits=Limits(max_in_flight_per_engine=1))
    b.load.begin("d0")
    task = asyncio.create_task(b.exchange.answer(arrival()))
    await settle()
    b.members.replace([])
    with pytest.raises(UnavailableError) as caught:
        await task
    assert caught.value.error_code == "no_ready_engine"


async def test_tenants_wait_in_turn_whatever_their_keys() -> None:
    b = bench(D0, limits=Limits(max_in_flight_per_engine=1))
    b.engines.gate = asyncio.Event()
    order: list[str] = []

    async def ask(tenant: str, key: str) -> None:
        await b.exchange.answer(replace(arrival(headers={"authorization": key}), tenant=tenant))
        order.append(tenant or key)

    clients = [("acme", "1"), ("acme", "2"), ("acme", "3"), ("beta", "4"), ("", "5"), ("", "5")]
    first = asyncio.create_task(b.exchange.answer(arrival()))
    await until_called(b.engines, 1)
    tasks = []
    for tenant, key in clients:
        tasks.append(asyncio.create_task(ask(tenant, key)))
        await settle()
    assert b.exchange.admission.waiting == 6
    b.engines.gate.set()
    await asyncio.gather(first, *tasks)
    # as one client each, and without a tenant by the key
    assert order == ["acme", "beta", "5", "acme", "5", "acme"]
