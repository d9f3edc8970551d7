"""Pods that leave in the middle of a request."""

from __future__ import annotations

import asyncio
from typing import Any

from protocol.proxy import stubs
from protocol.proxy.proxies import proxy
from protocol.proxy.stubs import decoder, encoder, image, until


async def test_an_engine_that_goes_between_choice_and_call_is_replaced() -> None:
    e = encoder()
    gone, good = decoder("a-gone"), decoder("b-good")

    async def behave(engine: stubs.StubEngine, request: Any, document: dict[str, Any]) -> stubs.web.StreamResponse:
        # while the picture is encoded, the only engine known stops listening; another comes, the watch says nothing yet
        await stop.wait()
        return await stubs.encode(engine, request, document)

    e.behave = behave
    stop = asyncio.Event()
    async with proxy(e, good) as p:
        async with gone.serve():
            p.members.replace([e.member(), gone.member()])
            task = asyncio.create_task(p.chat(image()))
            await e.started.wait()
        p.members.replace([e.member(), gone.member(), good.member()])
        p.load.begin("b-good")
        stop.set()
        answer = await task
        assert (answer.status, answer.headers["x-epd-prefill"]) == (200, "b-good")
        assert p.value("epd_proxy_retries_total", role="prefill-decode", cause="refused") == 1


async def test_an_encoder_that_left_rotation_meanwhile_gets_no_retry() -> None:
    release = asyncio.Event()

    async def behave(engine: stubs.StubEngine, request: Any, document: dict[str, Any]) -> stubs.web.StreamResponse:
        await release.wait()
        return await stubs.status(500, {})(engine, request, document)

    engines = [encoder(name, behave=behave) for name in ("e0", "e1")]
    pd = decoder()
    async with proxy(*engines, pd) as p:
        task = asyncio.create_task(p.chat(image()))
        await until(lambda: any(engine.requests for engine in engines))
        p.members.replace([engine.member(ready=False) for engine in engines] + [pd.member()])
        release.set()
        assert (await task).headers["x-epd-encode"] == "fallback"
        assert sum(len(engine.requests) for engine in engines) == 1
