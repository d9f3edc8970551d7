"""Primers that requests share: who joins whose, what is known of the store, and who breaks off what."""

from __future__ import annotations

import asyncio

import pytest

from epd.proxy.connectors import Connector
from epd.proxy.hints import Hints
from epd.proxy.primers import Encoded, EncodeFailure
from unit.proxy.engines import arrival, bench, document, member, settle, until_called
from unit.proxy.primings import E0, E1, encoding, named, order, uuids


async def test_equal_items_of_two_requests_are_encoded_once() -> None:
    b = bench(E0)
    b.engines.gate = asyncio.Event()
    work = encoding(b)
    tasks = [asyncio.create_task(work.encode(order(arrival(*p)))) for p in (("AAAA", "BBBB"), ("BBBB", "CCCC"))]
    await until_called(b.engines, 2)
    b.engines.gate.set()
    first, second = await asyncio.gather(*tasks)
    (a, bb), (c,) = uuids(b)
    assert [named(result) for result in first] == [[a, bb]]
    # what it shared, and not the other request's first picture
    assert [named(result) for result in second] == [[c], [bb]]
    # by the item's key, as in its own
    assert [list(result.reported) for result in second if isinstance(result, Encoded)] == [[c], [bb]]
    assert b.value("epd_proxy_encodes_total", role="encode", result="coalesced") == 1
    assert b.value("epd_proxy_encodes_total", role="encode", result="encoded") == 3


async def test_a_later_request_is_encoded_anew() -> None:
    b = bench(E0)
    work = encoding(b)
    await work.encode(order(arrival("AAAA")))
    await work.encode(order(arrival("AAAA")))
    assert b.engines.called() == ["e0", "e0"]


async def test_requests_of_different_authorization_share_nothing() -> None:
    b = bench(E0)
    b.engines.gate = asyncio.Event()
    work = encoding(b)
    tasks = [
        asyncio.create_task(work.encode(order(arrival("AAAA", headers={"authorization": key})))) for key in ("a", "b")
    ]
    await until_called(b.engines, 2)
    b.engines.gate.set()
    await asyncio.gather(*tasks)
    assert b.engines.called() == ["e0", "e0"]


async def test_a_failure_of_a_shared_primer_is_not_the_joiners() -> None:
    b = bench(E0, scripts={"e0": [document({}, 400)]})
    b.engines.gate = asyncio.Event()
    work = encoding(b)
    owner = asyncio.create_task(work.encode(order(arrival("bad0", "AAAA"))))
    await until_called(b.engines, 1)
    joiner = asyncio.create_task(work.encode(order(arrival("AAAA"))))
    await settle()
    assert len(b.engines.calls) == 1
    b.engines.gate.set()
    assert [type(result) for result in await owner] == [EncodeFailure]
    assert [type(result) for result in await joiner] == [Encoded]
    assert b.engines.called() == ["e0", "e0"]
    assert b.value("epd_proxy_encodes_total", role="encode", result="coalesced") == 0


async def test_who_leaves_last_breaks_off_the_primer() -> None:
    b = bench(E0)
    b.engines.gate = asyncio.Event()
    work = encoding(b)
    tasks = [asyncio.create_task(work.encode(order(arrival("AAAA")))) for _ in range(2)]
    await until_called(b.engines, 1)
    tasks[0].cancel()
    await settle()
    assert b.engines.cancelled == []
    tasks[1].cancel()
    await settle()
    assert b.engines.cancelled == ["e0"]
    assert b.load.counts() == {}
    # nothing of it is left to join
    b.engines.gate.set()
    [result] = await work.encode(order(arrival("AAAA")))
    assert isinstance(result, Encoded)


async def test_a_primer_that_is_being_broken_off_is_joined_by_nobody() -> None:
    b = bench(E0)
    b.engines.gate = asyncio.Event()
    work = encoding(b)
    leaving = asyncio.create_task(work.encode(order(arrival("AAAA"))))
    await until_called(b.engines, 1)
    leaving.cancel()
    # one step: the last who waited has gone, the primer itself has not ended yet
    await asyncio.sleep(0)
    assert (leaving.done(), b.engines.cancelled) == (True, [])
    b.engines.gate.set()
    [result] = await work.encode(order(arrival("AAAA")))
    assert isinstance(result, Encoded)
    await settle()
    assert b.load.counts() == {}


async def test_a_client_that_leaves_at_once_leaves_no_load() -> None:
    b = bench(E0)
    task = asyncio.create_task(encoding(b).encode(order(arrival("AAAA"))))
    await asyncio.sleep(0)
    task.cancel()
    await settle()
    assert b.load.counts() == {}


async def test_what_is_announced_to_one_reader_is_never_shared() -> None:
    b = bench(E0)
    b.engines.gate = asyncio.Event()
    work = encoding(b, connector=Connector.HOST_MEMORY, hints=Hints(seconds=60))
    tasks = [asyncio.create_task(work.encode(order(arrival("AAAA")))) for _ in range(2)]
    await until_called(b.engines, 2)
    b.engines.gate.set()
    for [result] in await asyncio.gather(*tasks):
        assert isinstance(result, Encoded)
        [[uuid]] = uuids(b)[:1]
        assert result.announced == {uuid: {"item_indices": [0], "metadata": {"image_grid_thw": [1, 8, 8]}}}
    await work.encode(order(arrival("AAAA")))
    assert b.engines.called() == ["e0"] * 3


async def test_items_that_are_known_to_be_in_the_store_get_no_primer() -> None:
    b = bench(E0, member("e9", "q"))
    work = encoding(b, connector=Connector.MANAGED, hints=Hints(seconds=60))
    [first] = await work.encode(order(arrival("AAAA")))
    hinted, primed = await work.encode(order(arrival("AAAA", "BBBB")))
    assert hinted == first
    assert named(primed) == uuids(b)[1]
    # of another pairing nothing is known
    await work.encode(order(arrival("AAAA"), "q"))
    assert b.engines.called() == ["e0", "e0", "e9"]
    assert b.value("epd_proxy_encodes_total", role="encode", result="hinted") == 1
    # not where it should be
    work.forget(arrival("AAAA").request, "p")
    await work.encode(order(arrival("AAAA")))
    assert b.engines.called()[3:] == ["e0"]


@pytest.mark.parametrize(("connector", "seconds"), [(Connector.EXAMPLE, 60), (Connector.MANAGED, 0)])
async def test_nothing_is_hinted_unless_asked_for_and_possible(connector: Connector, seconds: float) -> None:
    b, hints = bench(E0), Hints(seconds=seconds)
    work = encoding(b, connector=connector, hints=hints)
    for _ in range(2):
        await work.encode(order(arrival("AAAA")))
    assert (b.engines.called(), len(hints)) == (["e0", "e0"], 0)


async def test_what_was_not_published_is_not_known() -> None:
    b = bench(E0, E1, scripts={"e0": [document({}, 500)], "e1": [document({}, 500)]})
    hints = Hints(seconds=60)
    work = encoding(b, connector=Connector.MANAGED, hints=hints)
    await work.encode(order(arrival("AAAA")))
    b.engines.scripts |= {name: [document({"ec_transfer_params": None})] for name in ("e0", "e1")}
    await work.encode(order(arrival("AAAA")))
    assert len(hints) == 0
    # a second encoder's word counts as much
    b.engines.scripts |= {"e0": [document({}, 500)], "e1": []}
    b.load.begin("e1", 5)
    await work.encode(order(arrival("AAAA")))
    assert len(hints) == 1
