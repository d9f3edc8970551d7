"""Primers: which encoders are asked for what, and what a failure does to them."""

from __future__ import annotations

import asyncio
import gc

import pytest

from epd.proxy.encoding import NO_ENCODER
from epd.proxy.media import MediaItem
from epd.proxy.parsed import ParsedRequest
from epd.proxy.primers import Encoded, EncodeFailure, Primer
from epd.proxy.transport import Cause
from unit.proxy.engines import HANG, arrival, bench, broken, document, member, settle, until_called
from unit.proxy.primings import E0, E1, E2, encoding, named, order, uuids


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
