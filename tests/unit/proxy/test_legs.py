"""Prefill and decode as engines of their own, over scripted engines."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from epd.proxy.arrival import Arrival
from epd.proxy.errors import UnavailableError
from epd.proxy.health import State
from epd.proxy.legs import PREFILL_ONLY
from epd.proxy.requests import parse_chat
from epd.proxy.settings import Limits
from epd.proxy.transport import Cause
from unit.proxy.engines import (
    CONTENT,
    HANG,
    ROLE_CHUNK,
    Bench,
    MediaPolicy,
    Scripted,
    arrival,
    bench,
    broken,
    document,
    member,
    replace,
    settle,
    streamed,
    until_called,
)

E0 = member("e0")
P0, P1, D0, D1 = member("first0"), member("first1"), member("last0"), member("last1")
PARAMS = {"do_remote_prefill": True, "remote_block_ids": [[1, 2]], "remote_engine_id": "x", "remote_port": 5}
PREFILLED = {"choices": [{"message": {"content": "r"}, "finish_reason": "length"}], "kv_transfer_params": PARAMS}
IN_STREAM = b'data: {"error":{"message":"no","code":500}}\n\n'
CUT, REFUSED = broken(Cause.DISCONNECTED), broken(Cause.REFUSED)


def legs(*members: Any, **changes: Any) -> Bench:
    return bench(*members, split=True, **changes)


def with_fields(request: Arrival, **fields: Any) -> Arrival:
    parsed = request.request
    body = json.loads(parsed.body) if isinstance(parsed.body, bytes) else {}
    return replace(request, request=parse_chat(json.dumps(body | fields).encode(), policy=MediaPolicy()))


async def test_the_second_engine_gets_what_the_first_one_says() -> None:
    b = legs(P0, D0, scripts={"first0": [document(PREFILLED)]})
    reply = await b.exchange.answer(arrival())
    assert reply.status == 200
    assert reply.headers == {
        "content-type": "application/json",
        "x-epd-prefill": "first0",
        "x-epd-decode": "last0",
        "x-epd-encode": "none",
    }
    (first, sent), (last, passed_on) = b.engines.calls
    messages = {"messages": [{"role": "user", "content": [{"type": "text", "text": "What colour?"}]}]}
    assert (first, last) == ("first0", "last0")
    ends = {"stream": False, "max_tokens": 1, "max_completion_tokens": 1}
    assert sent == messages | ends | {"kv_transfer_params": dict(PREFILL_ONLY)}
    assert passed_on == messages | {"kv_transfer_params": PARAMS}
    assert b.load.counts() == {}
    assert all(answer.closed for answer in b.engines.answers)


async def test_only_the_end_differs() -> None:
    b = legs(P0, D0, scripts={"first0": [document(PREFILLED)], "last0": [streamed(ROLE_CHUNK, CONTENT)]})
    fields: dict[str, Any] = {
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 50,
        "min_tokens": 5,
        "seed": 2**70,
        "tools": [{"default": {"stream": True, "max_tokens": 9}}],
    }
    reply = await b.exchange.answer(with_fields(arrival(), **fields))
    (_, sent), (_, passed_on) = b.engines.calls
    same = {name: passed_on[name] for name in ("messages", "seed", "tools")}
    assert sent == same | {
        "stream": False,
        "max_tokens": 1,
        "max_completion_tokens": 1,
        "kv_transfer_params": dict(PREFILL_ONLY),
    }
    assert passed_on == same | fields | {"kv_transfer_params": PARAMS}
    assert (b.load.counts(), reply.stream is not None) == ({"last0": 1}, True)
    assert reply.stream is not None
    reply.stream.close()
    assert b.load.counts() == {}


async def test_a_completion_ends_by_the_one_field_it_knows() -> None:
    b = legs(P0, D0, scripts={"first0": [document(PREFILLED)]})
    await b.exchange.answer(replace(arrival(), path="/v1/completions"))
    assert (b.engines.calls[0][1]["max_tokens"], "max_completion_tokens" in b.engines.calls[0][1]) == (1, False)


async def test_media_are_encoded_first_and_both_get_the_same() -> None:
    b = legs(E0, P0, D0, rewrites=True, scripts={"first0": [document(PREFILLED)]})
    reply = await b.exchange.answer(arrival("AAAA"))
    assert b.engines.called() == ["e0", "first0", "last0"]
    (_, sent), (_, passed_on) = b.engines.calls[1:]
    assert sent["messages"] == passed_on["messages"]
    assert sent["messages"][0]["content"][1]["type"] == "image_embeds"
    assert reply.headers["x-epd-encode"] == "encoded"


@pytest.mark.parametrize("answer", [document({}), document({"kv_transfer_params": None}), document([])])
async def test_engines_that_find_each_other_by_themselves(answer: Any) -> None:
    b = legs(P0, D0, scripts={"first0": [answer]})
    assert (await b.exchange.answer(arrival())).status == 200
    assert "kv_transfer_params" not in b.engines.calls[1][1]


FAULTS: dict[str, tuple[dict[str, list[Any]], int | None, list[str]]] = {
    # name: scripts (first1 and last1 are busy), status (None: 503 of our own), engines asked
    "the first refuses the request": ({"first0": [document({}, 400)]}, 400, ["first0"]),
    "the first is gone": ({"first0": [REFUSED]}, 200, ["first0", "first1", "last0"]),
    "the first fails": ({"first0": [document({}, 500)]}, 200, ["first0", "first1", "last0"]),
    "both first fail": ({"first0": [CUT], "first1": [document({}, 500)]}, None, ["first0", "first1"]),
    # the work of the first is lost and done again, by another since the last may have failed for it
    "the last fails": ({"last0": [document({}, 500)]}, 200, ["first0", "last0", "first1", "last1"]),
    "the last is gone": ({"last0": [REFUSED]}, 200, ["first0", "last0", "first1", "last1"]),
}


@pytest.mark.parametrize("failure", [document({}, 500), streamed(ROLE_CHUNK, IN_STREAM), CUT])
async def test_the_only_last_engine_may_have_failed_for_the_first(failure: Any) -> None:
    b = legs(P0, P1, D0, scripts={"last0": [failure]})
    b.load.begin("first1")
    assert (await b.exchange.answer(arrival())).status == 200
    assert b.engines.called() == ["first0", "last0", "first1", "last0"]
    # where it prefills by itself it would only fail again
    b = legs(P0, D0, scripts={"last0": [document({}, 500)]})
    assert (await b.exchange.answer(replace(arrival(), path="/v1/responses"))).status == 500
    assert b.engines.called() == ["last0"]


@pytest.mark.parametrize(("scripts", "status", "asked"), FAULTS.values(), ids=FAULTS.keys())
async def test_failures(scripts: dict[str, list[Any]], status: int | None, asked: list[str]) -> None:
    b = legs(P0, P1, D0, D1, scripts={name: list(script) for name, script in scripts.items()})
    for name in ("first1", "last1"):
        b.load.begin(name)
    if status is None:
        with pytest.raises(UnavailableError) as caught:
            await b.exchange.answer(arrival())
        assert caught.value.error_code == "engine_unavailable"
    else:
        assert (await b.exchange.answer(arrival())).status == status
    assert b.engines.called() == asked
    assert b.load.counts() == {"first1": 1, "last1": 1}
    # who answers is not to blame for who prefills
    blamed = {name for name in ("last0", "last1") if b.exchange.health.state(name) is not State.HEALTHY}
    assert blamed == ({"last0"} if scripts.get("last0") == [REFUSED] else set())


P2 = member("first2")
RISKS: dict[str, tuple[dict[str, list[Any]], int | None, list[str]]] = {
    # name: scripts (first0 and last0 are least busy, first2 is most), status (None: 503 of our own), engines asked
    "both sendings fail": ({"first0": [document({}, 500)], "first1": [CUT]}, None, ["first0", "first1"]),
    "breaks, is gone": ({"first0": [CUT], "first1": [REFUSED]}, None, ["first0", "first1"]),
    "fails, is gone": (
        {"first0": [document({}, 500)], "first1": [REFUSED]},
        200,
        ["first0", "first1", "first2", "last1"],
    ),
    "the first and the last fail": ({"first0": [CUT], "last0": [CUT]}, None, ["first0", "first1", "last0"]),
}


@pytest.mark.parametrize(("scripts", "status", "asked"), RISKS.values(), ids=RISKS.keys())
async def test_one_request_fails_on_two_engines_at_most(
    scripts: dict[str, list[Any]], status: int | None, asked: list[str]
) -> None:
    members = (E0, P0, P1, P2, D0, D1)
    b = legs(*members, rewrites=True, scripts={name: list(script) for name, script in scripts.items()})
    busy = {"first1": 1, "first2": 2, "last1": 1}
    for name, amount in busy.items():
        b.load.begin(name, amount)
    if status is None:
        with pytest.raises(UnavailableError):
            await b.exchange.answer(arrival("AAAA"))
    else:
        assert (await b.exchange.answer(arrival("AAAA"))).status == status
    assert b.engines.called() == ["e0", *asked]
    assert b.load.counts() == busy


async def test_a_refusal_of_the_first_engine_is_passed_on_as_any() -> None:
    headers = {"content-type": "application/json", "retry-after": "7", "server": "uvicorn"}
    refusal = Scripted(status=429, headers=headers, chunks=[b'{"error":{"code":429},"kv_transfer_params":{"a":1}}'])
    b = legs(P0, D0, scripts={"first0": [refusal]})
    reply = await b.exchange.answer(arrival())
    assert (reply.status, json.loads(reply.body)) == (429, {"error": {"code": 429}})
    assert (reply.headers["retry-after"], reply.headers["x-epd-prefill"]) == ("7", "first0")
    assert "server" not in reply.headers


async def test_what_fails_without_media_is_prefilled_with_them() -> None:
    b = legs(E0, P0, D0, rewrites=True, scripts={"first0": [document({}, 500)] * 1})
    reply = await b.exchange.answer(arrival("AAAA"))
    kinds = [body["messages"][0]["content"][-1]["type"] for name, body in b.engines.calls[1:]]
    assert b.engines.called() == ["e0", "first0", "first0", "last0"]
    assert kinds == ["image_embeds", "image_url", "image_url"]
    assert (reply.status, reply.headers["x-epd-encode"]) == (200, "fallback")


async def test_pairings_without_engines_that_prefill_come_last() -> None:
    b = legs(P0, member("last9", "q"), D0)
    b.load.begin("last0", 5)
    assert (await b.exchange.answer(arrival())).headers["x-epd-decode"] == "last0"
    # what is prefilled where it is answered
    b.members.replace([member("first9", "r"), D0])
    assert not b.exchange.can_answer()
    assert (await b.exchange.answer(replace(arrival(), path="/v1/responses"))).status == 200


@pytest.mark.parametrize("members", [[D0], [P0], [D0, member("first9", "q")]])
async def test_nobody_is_left(members: list[Any]) -> None:
    b = legs(*members)
    with pytest.raises(UnavailableError) as caught:
        await b.exchange.answer(arrival())
    assert (caught.value.error_code, b.engines.calls, b.load.counts()) == ("no_ready_engine", [], {})


async def test_a_place_is_taken_while_the_first_one_works() -> None:
    b = legs(P0, D0, limits=Limits(max_in_flight_per_engine=1, queue=0), scripts={"first0": [HANG]})
    task = asyncio.create_task(b.exchange.answer(arrival()))
    await until_called(b.engines, 1)
    assert b.load.counts() == {"first0": 1, "last0": 1}
    task.cancel()
    await settle()
    assert (b.engines.cancelled, b.load.counts()) == (["first0"], {})


async def test_other_routes_are_prefilled_where_they_are_answered() -> None:
    b = legs(P0, D0)
    await b.exchange.answer(replace(arrival(), path="/v1/responses"))
    assert b.engines.called() == ["last0"]


async def test_nobody_gets_the_place_between_the_legs() -> None:
    limits = Limits(max_in_flight_per_engine=1)
    b = legs(P0, D0, limits=limits, scripts={"first0": [document(PREFILLED)], "last0": [HANG]})
    b.engines.gate = asyncio.Event()
    first = asyncio.create_task(b.exchange.answer(arrival()))
    await until_called(b.engines, 1)
    second = asyncio.create_task(b.exchange.answer(arrival()))
    await settle()
    assert b.exchange.admission.waiting == 1
    b.engines.gate.set()
    await until_called(b.engines, 2)
    await settle()
    assert (b.engines.called(), b.exchange.admission.waiting) == (["first0", "last0"], 1)
    assert b.load.counts() == {"last0": 1}
    first.cancel()
    await second
    assert b.engines.called() == ["first0", "last0", "first0", "last0"]
