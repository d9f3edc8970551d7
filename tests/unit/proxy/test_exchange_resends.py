"""Requests without their media, and when they are sent once more with them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from epd.proxy.connectors import Connector
from epd.proxy.errors import FallbackLimitError, UnavailableError
from epd.proxy.settings import EncoderFailurePolicy, Limits
from unit.proxy.engines import (
    CONTENT,
    HANG,
    ROLE_CHUNK,
    arrival,
    bench,
    document,
    member,
    settle,
    streamed,
    until_called,
)
from unit.proxy.exchanges import CUT, D0, D1, E0, ILL, IN_STREAM, REFUSED, sent_to

BARE: dict[str, tuple[dict[str, list[Any]], int | None, list[str], str]] = {
    # name: scripts, status (None: 503 of our own), engines asked ("*": without media), marked as
    "answers": ({}, 200, ["d0*"], "encoded"),
    "500": ({"d0": [ILL]}, 200, ["d0*", "d1"], "fallback"),
    "in-stream error": ({"d0": [streamed(ROLE_CHUNK, IN_STREAM)]}, 200, ["d0*", "d1"], "fallback"),
    "cuts the connection": ({"d0": [CUT]}, 200, ["d0*", "d1"], "fallback"),
    "cuts the body": ({"d0": [streamed(ROLE_CHUNK, CUT)]}, 200, ["d0*", "d1"], "fallback"),
    "error after content": ({"d0": [streamed(ROLE_CHUNK, CONTENT, IN_STREAM)]}, 200, ["d0*"], "encoded"),
    # it has seen nothing, so nothing speaks against the encoder's work
    "refuses the connection": ({"d0": [REFUSED]}, 200, ["d0*", "d1"], "encoded"),
    "refuses the body": ({"d0": [document({}, 400)]}, 200, ["d0*", "d1"], "fallback"),
    "refuses both bodies": ({"d0": [document({}, 400)], "d1": [document({}, 422)]}, 422, ["d0*", "d1"], "fallback"),
    "is busy": ({"d0": [document({}, 429)]}, 429, ["d0*"], "encoded"),
    "both fail": ({"d0": [ILL], "d1": [ILL]}, 500, ["d0*", "d1"], "fallback"),
    "both die": ({"d0": [CUT], "d1": [CUT]}, None, ["d0*", "d1"], ""),
    "dies, the other is gone": ({"d0": [CUT], "d1": [REFUSED]}, 200, ["d0*", "d1", "d9"], "fallback"),
    "both are gone": ({"d0": [REFUSED], "d1": [REFUSED]}, 200, ["d0*", "d1", "d9"], "fallback"),
}


@pytest.mark.parametrize(("scripts", "status", "asked", "marked"), BARE.values(), ids=BARE.keys())
async def test_what_fails_without_media_is_sent_once_more_with_them(
    scripts: dict[str, list[Any]], status: int | None, asked: list[str], marked: str
) -> None:
    b = bench(E0, D0, D1, member("d9", "q"), rewrites=True, scripts={name: list(s) for name, s in scripts.items()})
    b.load.begin("d1")
    if status is None:
        with pytest.raises(UnavailableError):
            await b.exchange.answer(arrival("AAAA"))
    else:
        reply = await b.exchange.answer(arrival("AAAA"))
        assert (reply.status, reply.headers["x-epd-encode"]) == (status, marked)
        if reply.stream:
            reply.stream.close()
    assert sent_to(b) == asked
    assert b.value("epd_proxy_rewritten_requests_total") == 1
    resends, retries = (b.metrics.totals()[name] for name in ("resends", "retries"))
    assert (sum(resends.values()), sum(retries.values())) == (int(len(asked) > 1), len(asked) - 1)
    assert retries.keys() >= resends.keys()
    assert b.load.counts() == {"d1": 1}
    assert all(answer.closed for answer in b.engines.answers)


async def test_alone_an_engine_gets_the_media_itself() -> None:
    b = bench(E0, D0, rewrites=True, scripts={"d0": [ILL]})
    reply = await b.exchange.answer(arrival("AAAA"))
    assert (reply.status, reply.headers["x-epd-encode"], sent_to(b)) == (200, "fallback", ["d0*", "d0"])
    assert b.value("epd_proxy_fallbacks_total", reason="resent") == 1
    b = bench(E0, D0, rewrites=True, scripts={"d0": [REFUSED]})
    with pytest.raises(UnavailableError):
        await b.exchange.answer(arrival("AAAA"))
    assert sent_to(b) == ["d0*"]


async def test_one_bad_request_touches_two_engines_at_most() -> None:
    everywhere = {name: [CUT, CUT, CUT] for name in ("d0", "d7", "d8", "d9")}
    b = bench(E0, D0, *(member(name, "q") for name in ("d7", "d8", "d9")), rewrites=True, scripts=everywhere)
    with pytest.raises(UnavailableError):
        await b.exchange.answer(arrival("AAAA"))
    assert len(set(b.engines.called()[1:])) == 2
    assert sent_to(b)[:2] == ["d0*", "d0"]


async def test_another_pairing_gets_the_media_whatever_was_encoded() -> None:
    b = bench(member("e0", "old"), member("d0", "old"), member("d9", "new"), rewrites=True)
    b.engines.gate = asyncio.Event()
    task = asyncio.create_task(b.exchange.answer(arrival("AAAA")))
    await until_called(b.engines, 1)
    b.members.replace([member("d9", "new")])
    b.engines.gate.set()
    await task
    assert sent_to(b) == ["d9"]


async def test_media_are_sent_where_they_have_to_be() -> None:
    failing: dict[str, list[Any]] = {"e0": [document({}, 500)]}
    silent: dict[str, list[Any]] = {"e0": [document({"ec_transfer_params": None})]}
    for scripts, rewrites in ((failing, True), (silent, True), ({}, False)):
        b = bench(E0, D0, rewrites=rewrites, scripts=scripts)
        assert (await b.exchange.answer(arrival("AAAA"))).status == 200
        assert sent_to(b) == ["d0"]
        assert b.value("epd_proxy_rewritten_requests_total") == 0
    b = bench(D0, encodes=False, rewrites=True)
    await b.exchange.answer(arrival("AAAA"))
    assert sent_to(b) == ["d0"]


async def test_a_resend_takes_no_place_of_a_fallback_and_is_no_matter_of_policy() -> None:
    limits = Limits(max_fallback_encodes=0)
    for policy in EncoderFailurePolicy:
        b = bench(E0, D0, rewrites=True, limits=limits, policy=policy, scripts={"d0": [ILL]})
        assert (await b.exchange.answer(arrival("AAAA"))).status == 200
    # unlike leaving the pairing after it
    b = bench(E0, D0, member("d9", "q"), rewrites=True, limits=limits, scripts={"d0": [ILL, ILL]})
    with pytest.raises(FallbackLimitError):
        await b.exchange.answer(arrival("AAAA"))
    assert sent_to(b) == ["d0*", "d0"]


async def test_a_client_that_leaves_has_nothing_sent_again() -> None:
    for scripts in ({"d0": [HANG]}, {"d0": [ILL], "d1": [HANG]}):
        b = bench(E0, D0, D1, rewrites=True, scripts=scripts)
        b.load.begin("d1")
        task = asyncio.create_task(b.exchange.answer(arrival("AAAA")))
        await until_called(b.engines, 1 + len(scripts))
        task.cancel()
        await settle()
        assert b.engines.cancelled == [list(scripts)[-1]]
        assert sent_to(b) == ["d0*", "d1"][: len(scripts)]
        assert b.load.counts() == {"d1": 1}


async def test_a_stream_that_is_refused_without_media_takes_no_place_while_it_is_sent_again() -> None:
    refusal = replace(streamed(CONTENT), status=400)
    b = bench(E0, D0, D1, rewrites=True, scripts={"d0": [refusal], "d1": [document({})]})
    b.load.begin("d1")
    assert (await b.exchange.answer(arrival("AAAA"))).status == 200
    assert (sent_to(b), b.load.counts()) == (["d0*", "d1"], {"d1": 1})


async def test_a_request_that_is_sent_again_is_broken_off_there() -> None:
    b = bench(E0, D0, D1, rewrites=True, scripts={"d0": [ILL], "d1": [HANG]})
    b.load.begin("d1")
    task = asyncio.create_task(b.exchange.answer(arrival("AAAA")))
    await until_called(b.engines, 3)
    task.cancel()
    await asyncio.wait([task])
    assert (sent_to(b), b.engines.cancelled) == (["d0*", "d1"], ["d1"])


async def test_a_hint_that_is_wrong_costs_one_resend() -> None:
    b = bench(E0, D0, rewrites=True, connector=Connector.MANAGED, hint_seconds=60)
    marks = []
    for answers in ([], [], [ILL], []):
        b.engines.scripts["d0"] = list(answers)
        marks.append((await b.exchange.answer(arrival("AAAA"))).headers["x-epd-encode"])
    # by the hint of the first; the third has it dropped
    assert marks == ["encoded", "encoded", "fallback", "encoded"]
    assert b.engines.called() == ["e0", "d0", "d0", "d0", "d0", "e0", "d0"]
    assert sent_to(b) == ["d0*", "d0*", "d0*", "d0", "d0*"]
