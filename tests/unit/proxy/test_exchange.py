"""The course of requests over scripted engines: what each kind of request needs, and that nothing is left of it."""

from __future__ import annotations

import asyncio

import pytest

from epd.proxy.course import Course
from epd.proxy.errors import ExhaustedError, UnavailableError
from epd.proxy.settings import EncoderFailurePolicy
from epd.proxy.transport import Cause, Reply
from unit.proxy.engines import CONTENT, HANG, ROLE_CHUNK, arrival, bench, broken, member, settle, streamed, until_called
from unit.proxy.exchanges import D0, E0


async def test_text_needs_no_encoder() -> None:
    b = bench(E0, D0)
    reply = await b.exchange.answer(arrival())
    assert (reply.status, b.engines.called()) == (200, ["d0"])
    assert reply.headers == {"content-type": "application/json", "x-epd-prefill": "d0", "x-epd-encode": "none"}


async def test_the_aggregated_topology_has_no_primers() -> None:
    b = bench(E0, D0, encodes=False)
    assert (await b.exchange.answer(arrival("AAAA"))).headers["x-epd-encode"] == "none"
    assert b.engines.called() == ["d0"]


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


async def test_headers_stay_small() -> None:
    b = bench(E0, D0)
    reply = await b.exchange.answer(arrival(*(f"A{n:03}" for n in range(200))))
    assert len(reply.headers["x-epd-items"].split(",")) == 32


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
