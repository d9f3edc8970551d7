"""Bodies of requests: compressed, in chunks, too large, too many at once, and some that never end."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator

from epd.proxy.settings import Limits
from protocol.proxy import stubs
from protocol.proxy.proxies import proxy
from protocol.proxy.rawclient import HELLO, address, post, raw
from protocol.proxy.stubs import CHAT, decoder, text, until


async def test_compressed_bodies_are_refused_and_plain_ones_may_say_so() -> None:
    pd = decoder()
    async with proxy(pd) as p:
        bomb = gzip.compress(b" " * 10_000_000)
        answer = await p.http.post(CHAT, data=bomb, headers={"content-encoding": "gzip"})
        assert (answer.status, (await answer.json())["error"]["code"]) == (415, "unsupported_encoding")
        assert pd.requests == []
        assert (await p.http.post(CHAT, data=HELLO, headers={"content-encoding": "identity"})).status == 200


async def test_a_body_in_chunks_reaches_the_engine_whole() -> None:
    pd = decoder()

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(HELLO), 7):
            yield HELLO[start : start + 7]

    async with proxy(pd) as p:
        assert (await p.http.post(CHAT, data=chunks())).status == 200
        assert pd.requests == [json.loads(HELLO)]


async def test_a_body_of_exactly_the_limit_is_taken() -> None:
    async with proxy(decoder(), limits=Limits(max_body_bytes=len(HELLO))) as p:
        assert (await p.http.post(CHAT, data=HELLO)).status == 200
        assert (await p.http.post(CHAT, data=HELLO + b" ")).status == 413


async def test_bodies_beyond_the_memory_for_them_are_429_until_a_stream_has_begun() -> None:
    begun = asyncio.Event()

    async def behave(engine: object, request: stubs.web.Request, document: object) -> stubs.web.StreamResponse:
        await begun.wait()
        return await stubs.hangs_after(stubs.ROLE_CHUNK, stubs.content_chunk("re"))(pd, request, {})

    pd = decoder(behave=behave)
    async with proxy(pd, room=300) as p:
        first = asyncio.create_task(p.chat(text("x" * 100), stream=True))
        await pd.started.wait()
        answer = await p.chat(text("y" * 100))
        assert (answer.status, (await answer.json())["error"]["code"]) == (429, "too_many_requests")
        assert answer.headers["retry-after"] == "1"
        begun.set()
        streaming = await first
        assert streaming.status == 200
        # the first is still in flight, but its body is not kept
        second = await p.chat(text("y" * 100), stream=True)
        assert (second.status, p.data_port.in_flight) == (200, 2)
        streaming.close()
        second.close()


async def test_a_body_of_unknown_length_counts_as_it_comes() -> None:
    pd = decoder(behave=stubs.hangs)
    async with proxy(pd, room=300) as p:

        async def chunks() -> AsyncIterator[bytes]:
            before = p.data_port.bodies.taken
            yield b" " * 10
            await until(lambda: p.data_port.bodies.taken == before + 10)
            yield b" " * 300

        first = asyncio.create_task(p.chat(text()))
        await pd.started.wait()
        assert (await p.http.post(CHAT, data=chunks())).status == 429
        first.cancel()
        await p.data_port.idle.wait()
        # alone it is read, and then found to be no JSON
        assert (await p.http.post(CHAT, data=chunks())).status == 400
        assert p.data_port.bodies.taken == 0


async def test_a_client_that_leaves_while_it_sends_leaves_nothing_behind() -> None:
    pd = decoder()
    async with proxy(pd, room=1000) as p:
        _, writer = await asyncio.open_connection(*address(p))
        writer.write(post().replace(b"content-length: ", b"content-length: 9")[:-5])
        await until(lambda: p.data_port.in_flight == 1)
        writer.close()
        await p.data_port.idle.wait()
        assert pd.requests == []
        assert p.data_port.bodies.taken == 0


async def test_a_body_that_never_ends_is_504() -> None:
    async with proxy(decoder(), limits=Limits(request_seconds=0.2)) as p:
        head, writer, _ = await raw(p, post().replace(b"content-length: ", b"content-length: 9"))
        writer.close()
        assert head.startswith(b"HTTP/1.1 504 ")
