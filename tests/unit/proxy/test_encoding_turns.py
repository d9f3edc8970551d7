"""Primers of a request with many items, a few at a time."""

from __future__ import annotations

import asyncio

import pytest

from epd.proxy import encoding as module
from epd.proxy import primers
from epd.proxy.connectors import Connector
from epd.proxy.encoding import PRIMERS_AT_ONCE
from epd.proxy.hints import Hints, hint_keys
from epd.proxy.media import MediaItem
from epd.proxy.parsed import ParsedRequest
from epd.proxy.parsed import primer_body as body_of_primer
from epd.proxy.primers import Encoded, EncodeFailure
from epd.proxy.transport import Body, Cause
from unit.proxy.engines import HANG, bench, broken, document, settle, until_called
from unit.proxy.primings import E0, E1, MANY, encoding, named, order, sounds, uuids


@pytest.mark.interpreted
async def test_primers_of_a_request_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[MediaItem] = []

    def primer_body(request: ParsedRequest, items: tuple[MediaItem, ...], fields: bytes = b"") -> Body:
        built.extend(items)
        return body_of_primer(request, items, fields)

    monkeypatch.setattr(primers, "primer_body", primer_body)
    b = bench(E0, E1)
    b.engines.gate = asyncio.Event()
    work = encoding(b)
    task = asyncio.create_task(work.encode(order(sounds(*MANY))))
    await until_called(b.engines, PRIMERS_AT_ONCE)
    await settle()
    assert (len(b.engines.calls), len(built)) == (PRIMERS_AT_ONCE, PRIMERS_AT_ONCE)
    # those that wait count for the encoders that they wait for
    assert sum(b.load.counts().values()) == len(MANY)
    # another request has turns of its own
    other = asyncio.create_task(work.encode(order(sounds("BBBB"))))
    await until_called(b.engines, PRIMERS_AT_ONCE + 1)
    b.engines.gate.set()
    found = [name for result in (*await task, *await other) for name in named(result)]
    assert sorted(found) == sorted(name for [name] in uuids(b))
    assert len(found) == len(MANY) + 1
    assert b.load.counts() == {}


@pytest.mark.interpreted
async def test_hint_keys_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counted(pairing: str, request: ParsedRequest) -> dict[str, str]:
        made.append(pairing)
        return hint_keys(pairing, request)

    monkeypatch.setattr(module, "hint_keys", counted)
    b, hints = bench(E0), Hints(seconds=60)
    await encoding(b, connector=Connector.MANAGED, hints=hints).encode(order(sounds(*MANY)))
    assert (made, len(hints)) == (["p"], len(MANY))


async def test_a_request_that_leaves_gives_its_turns_to_what_others_wait_for() -> None:
    b = bench(E0)
    b.engines.gate = asyncio.Event()
    work = encoding(b)
    owner = asyncio.create_task(work.encode(order(sounds(*MANY))))
    await until_called(b.engines, PRIMERS_AT_ONCE)
    joiner = asyncio.create_task(work.encode(order(sounds(MANY[-1]))))
    await settle()
    owner.cancel()
    await until_called(b.engines, PRIMERS_AT_ONCE + 1)
    await settle()
    assert len(b.engines.cancelled) == PRIMERS_AT_ONCE
    assert b.load.counts() == {"e0": 1}
    b.engines.gate.set()
    [result] = await joiner
    assert [named(result)] == uuids(b)[PRIMERS_AT_ONCE:]
    assert b.load.counts() == {}


async def test_who_waits_for_an_encoder_that_is_put_out_goes_elsewhere() -> None:
    b = bench(E0, E1, scripts={"e0": [broken(Cause.REFUSED)] * len(MANY)})
    b.engines.gate = asyncio.Event()
    task = asyncio.create_task(encoding(b).encode(order(sounds(*MANY))))
    await until_called(b.engines, PRIMERS_AT_ONCE)
    sent = b.engines.called().count("e0")
    assert 0 < sent < b.load["e0"]
    b.engines.gate.set()
    results = await task
    assert {type(result) for result in results} == {Encoded}
    # none but those that were on their way when it refused
    assert b.engines.called().count("e0") == sent
    assert b.value("epd_proxy_retries_total", role="encode", cause="refused") == sent
    assert b.load.counts() == {}


async def test_where_no_encoder_answers_the_rest_is_not_sent() -> None:
    b = bench(E0, E1, scripts={name: [HANG] * len(MANY) for name in ("e0", "e1")})
    results = await encoding(b, 0.02).encode(order(sounds(*MANY)))
    assert results == [EncodeFailure(reason="timeout")] * len(MANY)
    assert len(b.engines.calls) == 2 * PRIMERS_AT_ONCE
    assert b.value("epd_proxy_encodes_total", role="encode", result="failed") == len(MANY)
    assert b.load.counts() == {}


async def test_what_an_encoder_refuses_keeps_no_other_item_from_it() -> None:
    b = bench(E0, scripts={"e0": [document({}, 400)]})
    results = await encoding(b).encode(order(sounds(*MANY)))
    assert [type(result) for result in results] == [EncodeFailure, *[Encoded] * (len(MANY) - 1)]
