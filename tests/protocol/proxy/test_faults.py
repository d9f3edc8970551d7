"""Engines of the prefill side that fail: who is asked instead, and what the client is told."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from epd.proxy.settings import Limits
from protocol.proxy import stubs
from protocol.proxy.proxies import proxy
from protocol.proxy.stubs import ERROR_500, IN_STREAM_ERROR, decoder, encoder, image, text

BROKEN = {
    "500": stubs.status(500, ERROR_500),
    "503": stubs.status(503, ERROR_500),
    "in-stream error": stubs.streams(stubs.ROLE_CHUNK, stubs.event(IN_STREAM_ERROR), stubs.DONE),
    "dies before its head": stubs.dies_after(),
    "dies after the role chunk": stubs.dies_after(stubs.ROLE_CHUNK),
}


@pytest.mark.parametrize("behave", BROKEN.values(), ids=BROKEN.keys())
async def test_the_prefill_side_is_tried_once_more_elsewhere(behave: stubs.Behaviour) -> None:
    bad, good = decoder("bad", behave=behave), decoder("good")
    async with proxy(encoder(), bad, good) as p:
        for number in range(8):
            # the id breaks ties between idle engines, so this spreads the same way each time
            fields = {"stream": True, "headers": {"x-request-id": f"r{number}"}}
            answer = await p.chat(image(f"data:image/png;base64,AA{number}="), **fields)
            assert answer.status == 200
            assert b'"re"' in await answer.read()
            assert answer.headers["x-epd-prefill"] == "good"
        assert len(good.requests) == 8
        assert 0 < len(bad.requests) < 8
        assert p.load.counts() == {}


async def test_an_error_inside_the_stream_gets_its_own_status() -> None:
    pd = decoder(behave=BROKEN["in-stream error"])
    async with proxy(encoder(), pd) as p:
        answer = await p.chat(text(), stream=True)
        assert answer.status == 500
        assert answer.content_type == "application/json"
        assert await answer.json() == IN_STREAM_ERROR
        # alone, so there was nobody to retry with
        assert len(pd.requests) == 1


async def test_a_client_error_inside_the_stream_is_not_retried() -> None:
    error = {"error": {"message": "too long", "type": "BadRequestError", "code": 400}}
    engines = [decoder(n, behave=stubs.streams(stubs.ROLE_CHUNK, stubs.event(error))) for n in ("pd0", "pd1")]
    async with proxy(*engines) as p:
        answer = await p.chat(text(), stream=True)
        assert (answer.status, await answer.json()) == (400, error)
        assert sum(len(engine.requests) for engine in engines) == 1


async def test_the_engines_own_error_is_the_answer_when_both_fail() -> None:
    engines = [decoder(name, behave=stubs.status(503, ERROR_500)) for name in ("pd0", "pd1")]
    async with proxy(*engines) as p:
        answer = await p.chat(text())
        assert (answer.status, await answer.json()) == (503, ERROR_500)
        assert [len(engine.requests) for engine in engines] == [1, 1]
        assert p.value("epd_proxy_retries_total", role="prefill-decode", cause="status") == 1


async def test_a_refused_connection_goes_to_another_engine_and_else_is_503() -> None:
    gone, good = decoder("gone"), decoder("good")
    async with gone.serve():
        pass
    async with proxy(good) as p:
        p.members.replace([gone.member(), good.member()])
        for _ in range(8):
            answer = await p.chat(text())
            assert answer.headers["x-epd-prefill"] == "good"
        p.members.replace([gone.member()])
        answer = await p.chat(text())
        assert answer.status == 503
        assert (await answer.json())["error"]["code"] == "engine_unavailable"
        assert answer.headers["retry-after"] == "5"


async def test_a_single_engine_is_tried_again_when_only_its_connection_broke() -> None:
    pd = decoder()

    async def behave(engine: stubs.StubEngine, request: object, document: object) -> object:
        usual = stubs.generate if len(engine.requests) > 1 else stubs.dies_after()
        return await usual(engine, request, document)  # type: ignore[arg-type] # handed through

    pd.behave = behave  # type: ignore[assignment] # as above
    async with proxy(pd) as p:
        assert (await p.chat(text())).status == 200
        assert len(pd.requests) == 2


async def test_after_the_first_content_errors_pass_and_a_broken_stream_breaks() -> None:
    chunks = (stubs.ROLE_CHUNK, stubs.content_chunk("re"))
    late = decoder(behave=stubs.streams(*chunks, stubs.event(IN_STREAM_ERROR), stubs.DONE))
    async with proxy(late) as p:
        answer = await p.chat(text(), stream=True)
        assert await answer.read() == b"".join([*chunks, stubs.event(IN_STREAM_ERROR), stubs.DONE])
    engines = [decoder(name, behave=stubs.dies_after(*chunks)) for name in ("pd0", "pd1")]
    async with proxy(*engines) as p:
        answer = await p.chat(text(), stream=True)
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
        assert sum(len(engine.requests) for engine in engines) == 1
        await p.data_port.idle.wait()
        assert p.load.counts() == {}


async def test_a_silent_stream_ends_after_the_idle_timeout() -> None:
    pd = decoder(behave=stubs.hangs_after(stubs.ROLE_CHUNK, stubs.content_chunk("re")))
    async with proxy(pd, limits=Limits(idle_seconds=0.1)) as p:
        answer = await p.chat(text(), stream=True)
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
        await pd.aborted.wait()


async def test_a_request_that_takes_too_long_is_504_and_leaves_nothing_behind() -> None:
    e, pd = encoder(), decoder(behave=stubs.hangs)
    async with proxy(e, pd) as p:
        request = asyncio.create_task(p.chat(image()))
        await pd.started.wait()
        p.run_out_of_time()
        answer = await request
        assert answer.status == 504
        assert (await answer.json())["error"]["code"] == "request_timeout"
        await pd.aborted.wait()
        assert p.load.counts() == {}


async def test_a_client_that_does_not_read_loses_its_place_in_the_end() -> None:
    flood = stubs.content_chunk("x" * 60_000)
    pd = decoder(behave=stubs.streams(stubs.ROLE_CHUNK, *[flood] * 500))
    async with proxy(pd, limits=Limits(request_seconds=0.2)) as p:
        answer = await p.chat(text(), stream=True)
        await asyncio.wait_for(p.data_port.idle.wait(), 10)
        assert p.load.counts() == {}
        answer.close()
