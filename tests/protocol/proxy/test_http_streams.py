"""Streams and large answers as the data port passes them on."""

from __future__ import annotations

import asyncio

import pytest

from epd.proxy.settings import Limits
from protocol.proxy import stubs
from protocol.proxy.proxies import proxy
from protocol.proxy.rawclient import HELLO, post, raw
from protocol.proxy.stubs import decoder, text


@pytest.mark.parametrize(
    "chunks",
    [
        [part.replace(b"\n", b"\r\n") for part in (stubs.ROLE_CHUNK, stubs.content_chunk("red"), stubs.DONE)],
        [b": ping\n\n", stubs.ROLE_CHUNK, b": ping\n\n", stubs.content_chunk("red"), stubs.DONE],
        [b"event: x\nid: 7\nretry: 5\n" + stubs.content_chunk("red"), stubs.DONE],
        [b'data: {"choices":\ndata: [{"delta":{"content":"red"}}]}\n\n', stubs.DONE],
        [stubs.ROLE_CHUNK, stubs.event({"choices": [{"delta": {}, "finish_reason": "stop"}]}), stubs.DONE],
        [stubs.ROLE_CHUNK, stubs.event({"choices": [], "usage": {"total_tokens": 1}}), stubs.DONE],
        [stubs.event({"choices": [{"index": n, "delta": {"content": "x"}} for n in (1, 0)]}), stubs.DONE],
        [stubs.DONE],
        [stubs.ROLE_CHUNK],
        [],
    ],
    ids=[
        "CRLF",
        "comments",
        "fields",
        "two lines",
        "empty answer",
        "usage",
        "n=2",
        "done only",
        "role only",
        "nothing",
    ],
)
async def test_any_stream_without_an_error_is_passed_on_as_it_came(chunks: list[bytes]) -> None:
    async with proxy(decoder(behave=stubs.streams(*chunks))) as p:
        answer = await p.chat(text(), stream=True, stream_options={"include_usage": True}, n=2)
        assert (answer.status, await answer.read()) == (200, b"".join(chunks))
        assert answer.content_type == "text/event-stream"


async def test_an_engine_waits_for_a_client_that_does_not_read() -> None:
    written = 0
    flood = stubs.content_chunk("x" * 100_000)

    async def behave(engine: object, request: stubs.web.Request, document: object) -> stubs.web.StreamResponse:
        nonlocal written
        response = stubs.web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(1000):
            await response.write(flood)
            written += len(flood)
        return response

    async with proxy(decoder(behave=behave)) as p:
        _, writer, reader = await raw(p, post(body=HELLO[:-1] + b',"stream":true}'))
        before = -1
        async with asyncio.timeout(20):
            # until it stands still: the buffers of sockets and of the proxy are full
            while written != before:
                before = written
                await asyncio.sleep(0.3)
        assert 0 < written < 50_000_000
        # it goes on when the client reads
        received = 0
        while received < 60_000_000:
            received += len(await asyncio.wait_for(reader.read(1 << 20), 10))
        assert written > before
        writer.close()
        await p.data_port.idle.wait()


async def test_a_large_answer_that_nobody_reads_gives_its_place_back() -> None:
    async def behave(engine: object, request: object, document: object) -> stubs.web.StreamResponse:
        return stubs.web.json_response({"choices": [{"text": "x" * 30_000_000}]})

    async with proxy(decoder(behave=behave), limits=Limits(request_seconds=0.5)) as p:
        _, writer, _ = await raw(p, post())
        await asyncio.wait_for(p.data_port.idle.wait(), 10)
        assert p.load.counts() == {}
        writer.close()
