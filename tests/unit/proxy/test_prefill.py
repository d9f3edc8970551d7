from __future__ import annotations

import asyncio

import pytest

from epd.proxy.prefill import Attempt, PrefillSide
from epd.proxy.transport import Cause, TransportError
from unit.proxy.engines import CONTENT, ROLE_CHUNK, Bench, arrival, bench, broken, member, streamed

D0 = member("d0")
LAST = b'data: {"choices":[],"kv_transfer_params":{}}\n\n'
DONE = b"data: [DONE]\n\n"


async def attempt(b: Bench, idle: float = 60, seconds: float = 60) -> Attempt:
    side = PrefillSide(transport=b.engines, load=b.load, metrics=b.metrics, idle_seconds=idle)
    return await side.attempt(arrival(seconds=seconds), D0)


async def read_all(attempt: Attempt) -> list[bytes]:
    assert attempt.reply is not None
    assert attempt.reply.stream is not None
    chunks = []
    while chunk := await attempt.reply.stream.read_chunk():
        chunks.append(chunk)
    return chunks


async def test_a_stream_starts_with_all_that_was_held_back_and_loses_transfer_fields() -> None:
    b = bench(D0, scripts={"d0": [streamed(ROLE_CHUNK[:9], ROLE_CHUNK[9:], CONTENT, CONTENT + LAST, DONE)]})
    outcome = await attempt(b)
    assert outcome.cause is None
    assert b"".join(await read_all(outcome)) == ROLE_CHUNK + CONTENT + CONTENT + b'data: {"choices":[]}\n\n' + DONE


async def test_a_stream_holds_its_place_until_it_is_closed() -> None:
    b = bench(D0, scripts={"d0": [streamed(ROLE_CHUNK, CONTENT, DONE)]})
    outcome = await attempt(b)
    assert outcome.reply is not None
    assert outcome.reply.stream is not None
    assert (b.load.counts(), b.engines.answers[0].closed) == ({"d0": 1}, 0)
    outcome.reply.stream.close()
    outcome.reply.stream.close()
    assert (b.load.counts(), b.engines.answers[0].closed) == ({}, 1)


async def test_a_stream_without_content_is_passed_on() -> None:
    b = bench(D0, scripts={"d0": [streamed(ROLE_CHUNK)]})
    assert await read_all(await attempt(b)) == [ROLE_CHUNK]


@pytest.mark.parametrize("fault", [broken(Cause.DISCONNECTED), None])
async def test_a_stream_that_breaks_or_falls_silent_says_so(fault: TransportError | None) -> None:
    b = bench(D0, scripts={"d0": [streamed(ROLE_CHUNK + CONTENT, fault)]})
    with pytest.raises(TransportError) as error:
        await read_all(await attempt(b, idle=0.01))
    assert error.value.cause is (fault.cause if fault else Cause.TIMEOUT)


async def test_a_stream_ends_with_the_time_of_its_request() -> None:
    b = bench(D0, scripts={"d0": [streamed(ROLE_CHUNK + CONTENT, None)]})
    with pytest.raises(TransportError) as error:
        await asyncio.wait_for(read_all(await attempt(b, seconds=0.01)), 10)
    assert error.value.cause is Cause.TIMEOUT


async def test_only_headers_that_mean_something_to_clients_are_passed_on() -> None:
    answer = streamed(ROLE_CHUNK, CONTENT)
    answer.headers = {"content-type": "text/event-stream; charset=utf-8", "server": "uvicorn", "retry-after": "3"}
    outcome = await attempt(bench(D0, scripts={"d0": [answer]}))
    assert outcome.reply is not None
    assert outcome.reply.headers == {"content-type": "text/event-stream; charset=utf-8", "retry-after": "3"}
