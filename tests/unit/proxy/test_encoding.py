"""Primers: who is asked, what is shared, what is broken off."""

from __future__ import annotations

import asyncio
import gc
import json
import time

import pytest

from epd.proxy import encoding as module
from epd.proxy import primers
from epd.proxy.connectors import SHARING, Connector
from epd.proxy.encoding import NO_ENCODER, PRIMERS_AT_ONCE, Encoding
from epd.proxy.health import Health
from epd.proxy.hints import Hints, hint_keys
from epd.proxy.media import MediaItem, MediaPolicy
from epd.proxy.prefill import Arrival
from epd.proxy.primers import Encoded, EncodeFailure, EncodeOrder, Primer
from epd.proxy.requests import CHAT_PATH, ParsedRequest, parse_chat
from epd.proxy.requests import primer_body as body_of_primer
from epd.proxy.rotation import Rotation
from epd.proxy.transport import Body, Cause
from unit.proxy.engines import HANG, Bench, arrival, bench, broken, document, member, settle, until_called

E0, E1, E2 = member("e0"), member("e1"), member("e2")


def encoding(
    b: Bench,
    seconds: float = 60,
    connector: Connector = Connector.EXAMPLE,
    hints: Hints | None = None,
    now: list[float] | None = None,
) -> Encoding:
    health = Health(b.members, on_ejected=b.metrics.ejected, clock=lambda: now[0] if now else 1000.0)
    return Encoding(
        transport=b.engines,
        rotation=Rotation(members=b.members, load=b.load, health=health, bound=0),
        metrics=b.metrics,
        attempt_seconds=seconds,
        sharing=SHARING[connector],
        hints=Hints(seconds=0) if hints is None else hints,
    )


def order(request: Arrival, pairing: str = "p") -> EncodeOrder:
    return EncodeOrder(request=request.request, pairing=pairing, request_id="r", headers=request.headers)


def sounds(*names: str) -> Arrival:
    """A request with sounds, which have a primer each."""
    content = [{"type": "input_audio", "input_audio": {"data": name, "format": "wav"}} for name in names]
    body = json.dumps({"messages": [{"role": "user", "content": content}]}).encode()
    now = time.monotonic()
    return Arrival(
        path=CHAT_PATH,
        request=parse_chat(body, policy=MediaPolicy()),
        request_id="r",
        headers={},
        arrived=now,
        deadline=now + 60,
    )


MANY = [f"A{number:03}" for number in range(3 * PRIMERS_AT_ONCE)]


def named(result: Encoded | EncodeFailure) -> list[str]:
    assert isinstance(result, Encoded)
    return [item.identifier for item in result.reported.values()]


def uuids(b: Bench) -> list[list[str]]:
    return [[part["uuid"] for part in body["messages"][0]["content"]] for _, body in b.engines.calls]


async def test_images_for_one_encoder_share_a_primer() -> None:
    b = bench(E0)
    [result] = await encoding(b).encode(order(arrival("AAAA", "BBBB")))
    assert isinstance(result, Encoded)
    assert result.encoder == "e0"
    assert [named(result)] == uuids(b)
    assert {item.metadata["image_grid_thw"] == [1, 8, 8] for item in result.reported.values()} == {True}
    assert b.load.counts() == {}


async def test_many_items_spread_over_all_encoders_at_once() -> None:
    b = bench(E0, E1, E2)
    b.engines.gate = asyncio.Event()
    task = asyncio.create_task(encoding(b).encode(order(arrival(*(f"AAA{n}" for n in range(9))))))
    await until_called(b.engines, 3)
    assert sorted(b.engines.called()) == ["e0", "e1", "e2"]
    # 1.25 times the fair share of 3, rounded up
    assert sum(b.load.counts().values()) == 9
    assert max(b.load.counts().values()) <= 4
    b.engines.gate.set()
    assert len(await task) == 3


async def test_encoders_of_another_pairing_are_not_asked() -> None:
    b = bench(member("e0", "old"), member("e1", "new"), member("e2", "new", ready=False))
    [result] = await encoding(b).encode(order(arrival("AAAA"), "new"))
    assert b.engines.called() == ["e1"]
    assert isinstance(result, Encoded)
    assert await encoding(b).encode(order(arrival("AAAA"), "none")) == [EncodeFailure(reason=NO_ENCODER)]


@pytest.mark.parametrize(
    ("fault", "failure"),
    [
        (document({"error": 1}, 500), EncodeFailure(reason="status", status=500, body=b'{"error": 1}')),
        (broken(Cause.REFUSED), EncodeFailure(reason="refused")),
        (broken(Cause.DISCONNECTED), EncodeFailure(reason="disconnected")),
        (HANG, EncodeFailure(reason="timeout")),
    ],
)
async def test_one_other_encoder_is_tried(fault: object, failure: EncodeFailure) -> None:
    b = bench(E0, E1, E2, scripts={name: [fault] for name in ("e0", "e1", "e2")})
    [result] = await encoding(b, 0.02).encode(order(arrival("AAAA")))
    assert isinstance(result, EncodeFailure)
    assert (result.reason, result.status, result.body) == (failure.reason, failure.status, failure.body)
    first, second = b.engines.called()
    assert first != second
    assert b.load.counts() == {}
    assert b.value("epd_proxy_encodes_total", role="encode", result="failed") == 1
    assert b.value("epd_proxy_retries_total", role="encode", cause=failure.reason) == 1


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


async def test_an_encoder_that_fails_is_left_alone() -> None:
    b = bench(E0, E1, scripts={"e0": [broken(Cause.REFUSED)]})
    b.load.begin("e1", 5)
    work = encoding(b)
    for _ in range(3):
        await work.encode(order(arrival("AAAA")))
    assert b.engines.called() == ["e0", "e1", "e1", "e1"]
    assert b.value("epd_proxy_ejections_total", role="encode") == 1


@pytest.mark.parametrize(("status", "times"), [(500, 5), (400, None)])
async def test_errors_count_for_an_encoder_and_refusals_do_not(status: int, times: int | None) -> None:
    b = bench(E0, scripts={"e0": [document({}, status)] * 6})
    work = encoding(b)
    asked = 0
    while asked < 6 and not b.value("epd_proxy_ejections_total", role="encode"):
        await work.encode(order(arrival("AAAA")))
        asked += 1
    assert asked == (times or 6)


async def test_a_primer_that_takes_too_long_twice_counts() -> None:
    b = bench(E0, scripts={"e0": [HANG, HANG]})
    work = encoding(b, seconds=0.01)
    for _ in range(2):
        await work.encode(order(arrival("AAAA")))
    assert b.value("epd_proxy_ejections_total", role="encode") == 1


async def test_an_encoder_on_trial_gets_one_primer() -> None:
    b, now = bench(E0, E1, scripts={"e0": [broken(Cause.REFUSED), HANG]}), [1000.0]
    b.load.begin("e1", 5)
    work = encoding(b, now=now)
    await work.encode(order(arrival("AAAA")))
    now[0] += 1
    task = asyncio.create_task(work.encode(order(arrival("AAAA"))))
    await until_called(b.engines, 3)
    await work.encode(order(arrival("BBBB")))
    assert b.engines.called() == ["e0", "e1", "e0", "e1"]
    task.cancel()


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


async def test_what_the_proxy_lacks_puts_no_encoder_out() -> None:
    b = bench(E0, E1, scripts={name: [broken(Cause.LOCAL)] * 10 for name in ("e0", "e1")})
    work = encoding(b)
    for _ in range(5):
        assert await work.encode(order(arrival("AAAA"))) == [EncodeFailure(reason="local")]
    assert b.value("epd_proxy_ejections_total", role="encode") == 0


async def test_a_second_try_counts_for_the_encoder_that_makes_it() -> None:
    b = bench(E0, E1, scripts={"e0": [broken(Cause.REFUSED)], "e1": [HANG]})
    b.load.begin("e1", 5)
    task = asyncio.create_task(encoding(b).encode(order(arrival("AAAA", "BBBB"))))
    await until_called(b.engines, 2)
    assert b.load.counts() == {"e1": 7}
    task.cancel()
    await settle()
    assert b.load.counts() == {"e1": 5}


async def test_media_that_were_encoded_live_in_no_cycle_of_references() -> None:
    b = bench(E0, E1, scripts={"e0": [HANG, document({}, 500)]})
    work = encoding(b, 0.02)
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(2):
            await work.encode(order(arrival("AAAA")))
        gc.collect()
        assert [each for each in gc.garbage if isinstance(each, (Primer, ParsedRequest, MediaItem))] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
