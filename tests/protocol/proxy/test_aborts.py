"""Work is aborted when the last client that waits for it has left, and not before."""

from __future__ import annotations

import asyncio
from typing import Any

from protocol.proxy import stubs
from protocol.proxy.proxies import proxy
from protocol.proxy.stubs import decoder, encoder, image, text, until


async def test_a_joiner_that_leaves_does_not_disturb_the_primer_it_joined() -> None:
    release = asyncio.Event()

    async def behave(engine: stubs.StubEngine, request: Any, document: dict[str, Any]) -> stubs.web.StreamResponse:
        await release.wait()
        return await stubs.encode(engine, request, document)

    e, pd = encoder(behave=behave), decoder()
    async with proxy(e, pd) as p:
        first = asyncio.create_task(p.chat(image()))
        await e.started.wait()
        second = asyncio.create_task(p.chat(image()))
        await until(lambda: p.value("epd_proxy_encode_wanted_items_total", role="encode") == 2)
        second.cancel()
        await until(lambda: p.data_port.in_flight == 1)
        assert p.value("epd_proxy_encode_demand", role="encode") == 1
        release.set()
        assert (await first).headers["x-epd-encoders"] == "e0"
        assert not e.aborted.is_set()
        assert p.load.counts() == {}


async def test_no_task_or_connection_is_left_behind() -> None:
    e, pd = encoder(), decoder(behave=stubs.hangs_after(stubs.ROLE_CHUNK, stubs.content_chunk("re")))
    async with proxy(e, pd) as p:
        await (await p.http.get("/health")).read()
        before = len(asyncio.all_tasks())
        for number in range(5):
            answer = await p.chat(image(f"data:image/png;base64,AA{number}="), stream=True)
            answer.close()
            await p.data_port.idle.wait()
            await pd.aborted.wait()
            pd.aborted.clear()
        await until(lambda: len(asyncio.all_tasks()) <= before)
        assert (p.load.counts(), p.data_port.in_flight, p.data_port.bodies.taken) == ({}, 0, 0)
        assert p.value("epd_proxy_client_disconnects_total") == 5


async def test_a_stream_that_was_read_to_its_end_is_no_disconnect() -> None:
    async with proxy(encoder(), decoder()) as p:
        answer = await p.chat(image(), stream=True)
        await answer.read()
        await p.data_port.idle.wait()
        assert p.value("epd_proxy_client_disconnects_total") == 0


async def test_a_client_that_leaves_aborts_the_primer() -> None:
    e, pd = encoder(behave=stubs.hangs), decoder()
    async with proxy(e, pd) as p:
        task = asyncio.create_task(p.chat(image()))
        await e.started.wait()
        task.cancel()
        await e.aborted.wait()
        await p.data_port.idle.wait()
        assert pd.requests == []
        assert p.load.counts() == {}
        assert p.value("epd_proxy_client_disconnects_total") == 1


async def test_a_client_that_leaves_aborts_the_stream() -> None:
    pd = decoder(behave=stubs.hangs_after(stubs.ROLE_CHUNK, stubs.content_chunk("re")))
    async with proxy(encoder(), pd) as p:
        answer = await p.chat(image(), stream=True)
        answer.close()
        await pd.aborted.wait()
        await p.data_port.idle.wait()
        assert p.load.counts() == {}
        assert p.value("epd_proxy_client_disconnects_total") == 1


async def test_a_client_that_leaves_before_the_first_content_aborts_the_engine() -> None:
    pd = decoder(behave=stubs.hangs_after(stubs.ROLE_CHUNK))
    async with proxy(pd) as p:
        task = asyncio.create_task(p.chat(text(), stream=True))
        await pd.started.wait()
        task.cancel()
        await pd.aborted.wait()


async def test_a_shared_primer_outlives_the_client_that_began_it() -> None:
    release = asyncio.Event()

    async def behave(engine: stubs.StubEngine, request: object, document: dict[str, object]) -> object:
        await release.wait()
        return await stubs.encode(engine, request, document)  # type: ignore[arg-type] # handed through

    e, pd = encoder(behave=behave), decoder()  # type: ignore[arg-type] # as above
    async with proxy(e, pd) as p:
        first = asyncio.create_task(p.chat(image()))
        await e.started.wait()
        second = asyncio.create_task(p.chat(image()))
        await stubs.until(lambda: p.value("epd_proxy_encode_wanted_items_total", role="encode") == 2)
        first.cancel()
        await stubs.until(lambda: p.data_port.in_flight == 1)
        release.set()
        answer = await second
        assert (answer.status, answer.headers["x-epd-encoders"]) == (200, "e0")
        assert len(e.requests) == 1
        assert not e.aborted.is_set()
        assert p.value("epd_proxy_encodes_total", role="encode", result="coalesced") == 1
