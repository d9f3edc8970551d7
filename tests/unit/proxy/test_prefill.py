"""Attempts at an engine of the prefill side: what is called, what is held until when, and what a client gets."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from epd.proxy.prefill import PrefillSide
from epd.proxy.routing import InFlight
from epd.proxy.stream import EVENT_LIMIT_BYTES, HEAD_LIMIT_BYTES
from epd.proxy.transport import Call, Cause
from unit.proxy.engines import CONTENT, JSON, ROLE_CHUNK, Engines, Scripted, arrival, bench, broken, document, streamed
from unit.proxy.prefills import D0, DONE, LAST, STRIPPED, attempt, open_stream, relayed, stream_of
from unit.proxy.rawengine import Recorder


async def test_a_stream_starts_with_all_that_was_held_back_and_loses_transfer_fields() -> None:
    b = bench(D0, scripts={"d0": [streamed(ROLE_CHUNK[:9], ROLE_CHUNK[9:], CONTENT, CONTENT + LAST, DONE)]})
    outcome = await attempt(b)
    assert outcome.cause is None
    assert await relayed(outcome) == (ROLE_CHUNK + CONTENT + CONTENT + STRIPPED + DONE, None)


async def test_what_comes_before_the_relay_is_not_lost() -> None:
    b = bench(D0, scripts={"d0": [streamed(ROLE_CHUNK, CONTENT, None)]})
    outcome = await attempt(b)
    [answer] = b.engines.answers
    answer.chunks = [CONTENT, LAST, None]
    answer.resume()
    answer.chunks = [DONE]
    assert await relayed(outcome) == (ROLE_CHUNK + CONTENT + CONTENT + STRIPPED + DONE, None)


async def test_events_pass_as_they_come_and_whole() -> None:
    answer = streamed()
    stream, sink = open_stream(answer, head=ROLE_CHUNK + CONTENT), Recorder()
    answer.chunks = [None]
    stream.relay(sink)
    seen = [bytes(sink.body)]
    for chunk in (CONTENT, CONTENT[:5], CONTENT[5:] + LAST, DONE[:-1]):
        stream.write(chunk)
        seen.append(bytes(sink.body)[sum(map(len, seen)) :])
    stream.end()
    seen.append(bytes(sink.body)[sum(map(len, seen)) :])
    assert seen == [ROLE_CHUNK + CONTENT, CONTENT, b"", CONTENT + STRIPPED, b"", DONE[:-1]]
    assert sink.over.result() is None


@pytest.mark.parametrize("end", [[DONE], [broken(Cause.DISCONNECTED)]])
async def test_an_engine_that_has_ended_a_stream_is_free_whatever_its_client_has_read(end: list[Any]) -> None:
    b = bench(D0, scripts={"d0": [streamed(ROLE_CHUNK + CONTENT, None)]})
    stream, sink = stream_of(await attempt(b)), Recorder()
    stream.relay(sink)
    assert b.load.counts() == {"d0": 1}
    [answer] = b.engines.answers
    answer.chunks = end
    answer.resume()
    assert (sink.over.done(), b.load.counts()) == (True, {})
    # another one's place is not given up for it
    b.load.begin("d0")
    stream.close()
    assert b.load.counts() == {"d0": 1}


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_an_engine_is_asked_by_the_method_that_the_client_used(method: str) -> None:
    calls: list[Call] = []

    class Listening(Engines):
        async def send(self, call: Call) -> Scripted:
            calls.append(call)
            return await super().send(call)

    side = PrefillSide(transport=Listening(), load=InFlight(), idle_seconds=60)
    request = arrival(headers={"traceparent": "t"})
    await side.attempt(
        request if method == "POST" else replace(request, method=method, path="/v1/responses/resp_1"), D0
    )
    [call] = calls
    path = request.path if method == "POST" else "/v1/responses/resp_1"
    headers = {"traceparent": "t", "content-type": "application/json", "x-request-id": "r"}
    assert (call.method, call.path, call.address, call.headers) == (method, path, D0.address, headers)


async def test_a_stream_holds_its_place_until_it_is_closed() -> None:
    b = bench(D0, scripts={"d0": [streamed(ROLE_CHUNK, CONTENT, DONE)]})
    stream = stream_of(await attempt(b))
    assert (b.load.counts(), b.engines.answers[0].closed) == ({"d0": 1}, 0)
    stream.close()
    stream.close()
    assert (b.load.counts(), b.engines.answers[0].closed) == ({}, 1)


@pytest.mark.parametrize(
    "answer",
    [
        document({"choices": []}),
        document({}, 500),
        streamed(b'data: {"error":{"code":500}}\n\n'),
        streamed(broken(Cause.DISCONNECTED)),
        Scripted(headers=JSON, chunks=[broken(Cause.DISCONNECTED)]),
    ],
)
async def test_whatever_is_no_stream_leaves_at_once(answer: Scripted) -> None:
    b = bench(D0, scripts={"d0": [answer]})
    await attempt(b)
    assert (b.load.counts(), b.engines.answers[0].closed) == ({}, 1)


@pytest.mark.parametrize("answer", [streamed(ROLE_CHUNK, None), Scripted(headers=JSON, chunks=[None])])
async def test_a_cancelled_attempt_leaves_nothing(answer: Scripted) -> None:
    b = bench(D0, scripts={"d0": [answer]})
    task = asyncio.create_task(attempt(b))
    for _ in range(5):
        await asyncio.sleep(0)
    assert b.load.counts() == {"d0": 1}
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (b.load.counts(), b.engines.answers[0].closed) == ({}, 1)


async def test_a_stream_without_content_is_passed_on() -> None:
    b = bench(D0, scripts={"d0": [streamed(ROLE_CHUNK)]})
    assert await relayed(await attempt(b)) == (ROLE_CHUNK, None)


async def test_a_head_that_has_no_end_is_paused_until_it_is_relayed() -> None:
    large = b"x" * HEAD_LIMIT_BYTES
    b = bench(D0, scripts={"d0": [streamed(large, b"x", b"y\n\n")]})
    outcome = await attempt(b)
    assert b.engines.answers[0].chunks == [b"y\n\n"]
    assert await relayed(outcome) == (large + b"xy\n\n", None)


async def test_a_pause_in_the_first_write_holds() -> None:
    answer = streamed(CONTENT, DONE)
    stream = open_stream(answer, head=ROLE_CHUNK + CONTENT)
    sink = Recorder(stream, pause_at=1)
    stream.relay(sink)
    assert (bytes(sink.body), answer.paused) == (ROLE_CHUNK + CONTENT, True)
    stream.resume()
    assert (bytes(sink.body), sink.over.result()) == (ROLE_CHUNK + CONTENT + CONTENT + DONE, None)


async def test_an_event_without_end_breaks_the_stream() -> None:
    answer = streamed(b"data: " + b"x" * EVENT_LIMIT_BYTES, DONE)
    stream, sink = open_stream(answer), Recorder()
    stream.relay(sink)
    broke = sink.over.result()
    assert broke is not None
    assert (broke.cause, bytes(sink.body), answer.closed) == (Cause.PROTOCOL, b"", 1)


async def test_only_headers_that_mean_something_to_clients_are_passed_on() -> None:
    answer = streamed(ROLE_CHUNK, CONTENT)
    answer.headers = {"content-type": "text/event-stream; charset=utf-8", "server": "uvicorn", "retry-after": "3"}
    outcome = await attempt(bench(D0, scripts={"d0": [answer]}))
    assert outcome.reply is not None
    assert outcome.reply.headers == {"content-type": "text/event-stream; charset=utf-8", "retry-after": "3"}
