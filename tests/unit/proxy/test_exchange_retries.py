"""An engine of the prefill side fails: who is asked instead, in its pairing and out of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from epd.proxy.errors import FallbackLimitError, UnavailableError
from epd.proxy.health import State
from epd.proxy.settings import EncoderFailurePolicy, Limits
from unit.proxy.engines import CONTENT, ROLE_CHUNK, arrival, bench, document, member, streamed, until_called
from unit.proxy.exchanges import CUT, D0, D1, E0, IN_STREAM, REFUSED

PREFILL: dict[str, tuple[list[Any], list[Any], int | None, list[str]]] = {
    # name: script of the first engine, of the second, status of the reply (None: 503 of our own), who was asked
    "answers": ([], [], 200, ["d0"]),
    "refuses the connection": ([REFUSED], [], 200, ["d0", "d1"]),
    "cuts the connection": ([CUT], [], 200, ["d0", "d1"]),
    "500": ([document({}, 500)], [], 200, ["d0", "d1"]),
    "503": ([document({}, 503)], [], 200, ["d0", "d1"]),
    "400": ([document({}, 400)], [], 400, ["d0"]),
    "429": ([document({}, 429)], [], 429, ["d0"]),
    "cuts the body": ([streamed(ROLE_CHUNK, CUT)], [], 200, ["d0", "d1"]),
    "in-stream error": ([streamed(ROLE_CHUNK, IN_STREAM)], [], 200, ["d0", "d1"]),
    "error after content": ([streamed(ROLE_CHUNK, CONTENT, IN_STREAM)], [], 200, ["d0"]),
    "both fail with 500": ([document({}, 500)], [document({}, 502)], 502, ["d0", "d1"]),
    "500, then refused": ([document({}, 500)], [REFUSED], None, ["d0", "d1"]),
    "both refuse": ([REFUSED], [REFUSED], None, ["d0", "d1"]),
}


@pytest.mark.parametrize(("first", "second", "status", "asked"), PREFILL.values(), ids=PREFILL.keys())
async def test_one_retry_on_the_prefill_side(
    first: list[Any], second: list[Any], status: int | None, asked: list[str]
) -> None:
    # busy, so that d0 is asked first; copies, because a script is used up
    b = bench(D0, D1, scripts={"d0": list(first), "d1": list(second)})
    b.load.begin("d1")
    if status is None:
        with pytest.raises(UnavailableError):
            await b.exchange.answer(arrival())
    else:
        reply = await b.exchange.answer(arrival())
        assert reply.status == status
        if reply.stream:
            reply.stream.close()
    assert b.engines.called() == asked
    assert b.load.counts() == {"d1": 1}
    assert all(answer.closed for answer in b.engines.answers)


@pytest.mark.parametrize(("fault", "calls"), [(CUT, 2), (REFUSED, 1)])
async def test_alone_only_a_broken_connection_is_tried_again(fault: Exception, calls: int) -> None:
    b = bench(D0, scripts={"d0": [fault, document({})]})
    outcome = await asyncio.gather(b.exchange.answer(arrival()), return_exceptions=True)
    assert isinstance(outcome[0], UnavailableError) == (calls == 1)
    assert b.engines.called() == ["d0"] * calls


async def test_a_retry_of_a_primed_request_stays_within_its_pairing() -> None:
    b = bench(E0, D0, D1, member("d9", "q"), scripts={"d0": [document({}, 500)], "d1": [document({}, 500)]})
    assert (await b.exchange.answer(arrival("AAAA"))).status == 500
    assert sorted(b.engines.called()) == ["d0", "d1", "e0"]
    b = bench(D0, member("d9", "q"), scripts={"d0": [REFUSED], "d9": [REFUSED]})
    with pytest.raises(UnavailableError):
        await b.exchange.answer(arrival())
    assert sorted(b.engines.called()) == ["d0", "d9"]


DESERTED: dict[str, tuple[dict[str, list[Any]], int | None, list[str]]] = {
    # name: scripts (d0 and d1 are of the pairing that encoded, d8 and d9 of another), status, engines asked after e0
    "one broke, one is gone": ({"d0": [CUT], "d1": [REFUSED]}, 200, ["d0", "d1", "d9"]),
    # two that took it: it may have killed them, and is kept from others
    "both broke": ({"d0": [CUT], "d1": [CUT]}, None, ["d0", "d1"]),
    "one broke, one is gone, one of the others broke": (
        {"d0": [CUT], "d1": [REFUSED], "d9": [CUT]},
        None,
        ["d0", "d1", "d9"],
    ),
    "both are gone": ({"d0": [REFUSED], "d1": [REFUSED]}, 200, ["d0", "d1", "d9"]),
    "gone, then 500": ({"d0": [REFUSED], "d1": [document({}, 500)]}, 500, ["d0", "d1"]),
    "500, then gone": ({"d0": [document({}, 500)], "d1": [REFUSED]}, 200, ["d0", "d1", "d9"]),
    "so is one of the others": ({"d0": [CUT], "d1": [REFUSED], "d9": [REFUSED]}, 200, ["d0", "d1", "d9", "d8"]),
    "all are gone": ({name: [REFUSED] for name in ("d0", "d1", "d8", "d9")}, None, ["d0", "d1", "d9", "d8"]),
}


@pytest.mark.parametrize(("scripts", "status", "asked"), DESERTED.values(), ids=DESERTED.keys())
async def test_a_pairing_whose_engines_are_gone_is_left_by_fallback(
    scripts: dict[str, list[Any]], status: int | None, asked: list[str]
) -> None:
    others = [member("d8", "q"), member("d9", "q")]
    b = bench(E0, D0, D1, *others, scripts={name: list(script) for name, script in scripts.items()})
    for name in ("d1", "d8"):
        b.load.begin(name)
    reply = None
    if status is None:
        with pytest.raises(UnavailableError):
            await b.exchange.answer(arrival("AAAA"))
    else:
        reply = await b.exchange.answer(arrival("AAAA"))
        assert reply.status == status
    assert b.engines.called() == ["e0", *asked]
    left = asked[-1] > "d1"
    assert b.value("epd_proxy_fallbacks_total", reason="pairing-gone") == left
    if reply is not None:
        assert reply.headers["x-epd-encode"] == ("fallback" if left else "encoded")
    assert b.load.counts() == {"d1": 1, "d8": 1}
    # its place among the fallbacks is free again
    assert b.exchange._demand.fallbacks == 0


@pytest.mark.parametrize(
    ("fault", "asked"),
    [
        (REFUSED, ["d0", "d9"]),
        (CUT, ["d0", "d0", "d9"]),
        (document({}, 500), ["d0", "d9"]),
        (document({}, 400), ["d0"]),
    ],
)
async def test_the_only_engine_of_a_pairing_is_left_when_it_is_ill(fault: Any, asked: list[str]) -> None:
    b = bench(E0, D0, member("d9", "q"), scripts={"d0": [fault, CUT]})
    # busier than the ill one, and asked nevertheless
    b.load.begin("d9")
    await b.exchange.answer(arrival("AAAA"))
    assert b.engines.called() == ["e0", *asked]


async def test_a_request_that_made_its_engine_ill_is_tried_on_one_other_only() -> None:
    ill = [document({}, 500)]
    b = bench(E0, D0, member("d8", "q"), member("d9", "q"), scripts={"d0": ill, "d8": list(ill), "d9": list(ill)})
    assert (await b.exchange.answer(arrival("AAAA"))).status == 500
    assert len(b.engines.called()) == 3


async def test_under_fail_no_pairing_is_left() -> None:
    b = bench(E0, D0, member("d9", "q"), policy=EncoderFailurePolicy.FAIL, scripts={"d0": [REFUSED]})
    with pytest.raises(UnavailableError):
        await b.exchange.answer(arrival("AAAA"))
    assert b.engines.called() == ["e0", "d0"]
    b = bench(E0, D0, member("d9", "q"), policy=EncoderFailurePolicy.FAIL)
    b.engines.gate = asyncio.Event()
    task = asyncio.create_task(b.exchange.answer(arrival("AAAA")))
    await until_called(b.engines, 1)
    b.members.replace([member("d9", "q")])
    b.engines.gate.set()
    with pytest.raises(UnavailableError):
        await task
    assert b.engines.called() == ["e0"]


async def test_leaving_a_pairing_is_bounded_as_every_fallback() -> None:
    b = bench(E0, D0, member("d9", "q"), limits=Limits(max_fallback_encodes=0), scripts={"d0": [REFUSED]})
    with pytest.raises(FallbackLimitError):
        await b.exchange.answer(arrival("AAAA"))
    assert b.engines.called() == ["e0", "d0"]


async def test_an_engine_that_is_gone_is_asked_once() -> None:
    b = bench(D0, D1, scripts={"d0": [REFUSED]})
    b.load.begin("d1")
    for _ in range(3):
        await b.exchange.answer(arrival())
    assert b.engines.called() == ["d0", "d1", "d1", "d1"]
    assert b.exchange.health.state("d0") is State.EJECTED
    assert b.value("epd_proxy_ejections_total", role="prefill-decode") == 1
