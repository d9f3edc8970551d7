"""The course of requests over scripted engines: pairings, policy, retries, bounds."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from epd.proxy.connectors import Connector
from epd.proxy.course import Course
from epd.proxy.errors import (
    EncoderUnavailableError,
    ExhaustedError,
    FallbackLimitError,
    InvalidRequestError,
    OverloadedError,
    ProxyError,
    UnavailableError,
)
from epd.proxy.health import State
from epd.proxy.prefill import Arrival
from epd.proxy.settings import EncoderFailurePolicy, Limits
from epd.proxy.stored import RESPONSES_PATH, made_by, new_id
from epd.proxy.transport import Cause, Reply
from unit.proxy.engines import (
    CONTENT,
    HANG,
    ROLE_CHUNK,
    Bench,
    arrival,
    bench,
    broken,
    document,
    member,
    settle,
    streamed,
    until_called,
)

E0, E1, D0, D1 = member("e0"), member("e1"), member("d0"), member("d1")
REFUSED, CUT = broken(Cause.REFUSED), broken(Cause.DISCONNECTED)
ILL = document({}, 500)
IN_STREAM = b'data: {"error":{"message":"no","code":500}}\n\n'


def sent_to(b: Bench) -> list[str]:
    """The prefill-side engines in the order of the calls; with a star where no media were sent."""
    calls = [(name, body["messages"][0]["content"]) for name, body in b.engines.calls if name.startswith("d")]
    return [name + "*" * any(part["type"] == "image_embeds" for part in parts) for name, parts in calls]


async def test_text_needs_no_encoder() -> None:
    b = bench(E0, D0)
    reply = await b.exchange.answer(arrival())
    assert (reply.status, b.engines.called()) == (200, ["d0"])
    assert reply.headers == {"content-type": "application/json", "x-epd-prefill": "d0", "x-epd-encode": "none"}


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


async def test_the_aggregated_topology_has_no_primers() -> None:
    b = bench(E0, D0, encodes=False)
    assert (await b.exchange.answer(arrival("AAAA"))).headers["x-epd-encode"] == "none"
    assert b.engines.called() == ["d0"]


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


@pytest.mark.parametrize("pictures", [(), ("AAAA",)], ids=["text", "media"])
async def test_in_whichever_round_a_client_leaves_nothing_is_left(pictures: tuple[str, ...]) -> None:
    rounds, streams, left = 0, 0, True
    while left:
        b = bench(E0, D0, scripts={"d0": [streamed(ROLE_CHUNK, CONTENT, None)]})
        replies: list[Reply | None] = []
        course = Course(b.exchange.answer(arrival(*pictures)), lambda reply, _, kept=replies: kept.append(reply))
        course.begin()
        for _ in range(rounds):
            await asyncio.sleep(0)
        left = not replies
        course.cancel()
        await settle()
        (reply,) = replies
        if reply is not None:
            assert reply.stream is not None
            reply.stream.close()
            streams += 1
        assert (b.load.counts(), b.exchange._demand.fallbacks) == ({}, 0)
        assert all(answer.closed for answer in b.engines.answers)
        rounds += 1
    assert (rounds > 1, streams) == (True, 1)


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


async def test_headers_stay_small() -> None:
    b = bench(E0, D0)
    reply = await b.exchange.answer(arrival(*(f"A{n:03}" for n in range(200))))
    assert len(reply.headers["x-epd-items"].split(",")) == 32


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


async def test_a_request_is_broken_off_wherever_it_is() -> None:
    for scripts, calls in (({"e0": [HANG]}, 1), ({"d0": [HANG]}, 2), ({"d0": [streamed(ROLE_CHUNK, None)]}, 2)):
        b = bench(E0, D0, scripts=scripts)
        task = asyncio.create_task(b.exchange.answer(arrival("AAAA")))
        await until_called(b.engines, calls)
        await settle()
        task.cancel()
        await asyncio.wait([task])
        await settle()
        assert task.cancelled()
        assert b.load.counts() == {}
        assert all(answer.closed for answer in b.engines.answers)


async def test_nobody_is_there() -> None:
    for members in ((), (E0,), (member("d0", ready=False),)):
        b = bench(*members)
        assert not b.exchange.can_answer()
        with pytest.raises(UnavailableError) as error:
            await b.exchange.answer(arrival("AAAA"))
        assert error.value.error_code == "no_ready_engine"
        # yet it wanted an encoder, or two roles at zero could only start one after the other
        assert b.value("epd_proxy_encode_wanted_items_total", role="encode") == 1
        assert b.value("epd_proxy_encode_demand", role="encode") == 0
        with pytest.raises(UnavailableError):
            await b.exchange.models(headers={})


async def test_an_engine_that_is_gone_is_asked_once() -> None:
    b = bench(D0, D1, scripts={"d0": [REFUSED]})
    b.load.begin("d1")
    for _ in range(3):
        await b.exchange.answer(arrival())
    assert b.engines.called() == ["d0", "d1", "d1", "d1"]
    assert b.exchange.health.state("d0") is State.EJECTED
    assert b.value("epd_proxy_ejections_total", role="prefill-decode") == 1


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


@pytest.mark.parametrize(
    ("names", "split", "pictures"),
    [(("d0", "d1"), False, ()), (("first0", "last0"), True, ()), (("e0", "d0"), False, ("AAAA",))],
)
async def test_what_the_proxy_itself_lacks_is_said_and_blames_no_engine(
    names: tuple[str, ...], split: bool, pictures: tuple[str, ...]
) -> None:
    scripts = {name: [broken(Cause.LOCAL)] * 2 for name in names}
    b = bench(*map(member, names), split=split, scripts=scripts, policy=EncoderFailurePolicy.FAIL)
    with pytest.raises(ExhaustedError) as error:
        await b.exchange.answer(arrival(*pictures))
    assert (error.value.status, error.value.error_code) == (503, "proxy_exhausted")
    assert (b.load.counts(), b.exchange.health.calm()) == ({}, True)


async def test_the_engine_that_made_a_response_is_told_what_encoders_announce() -> None:
    b = bench(E0, D0, D1, connector=Connector.HOST_MEMORY)
    b.load.begin("d1")
    request = arrival("AAAA")
    request = replace(request, request=replace(request.request, previous_response_id=new_id("d1")))
    reply = await b.exchange.answer(request)
    [(name, body)] = b.engines.calls[1:]
    assert (reply.status, name, "ec_transfer_params" in body) == (200, "d1", True)


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
