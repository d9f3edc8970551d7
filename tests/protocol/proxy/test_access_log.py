"""Lines of the access log, as the real process writes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from protocol.proxy import stubs
from protocol.proxy.processes import Running, flags, running, stop
from protocol.proxy.stubs import CHAT, StubEngine, decoder, encoder

SECRET = "sk-0123456789abcdef"
PICTURE = "https://pictures.example.com/private.png?token=0123"


async def lines(engines: Sequence[StubEngine], *more: str, bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is written of requests with `bodies` that are sent one after the other."""
    async with AsyncExitStack() as stack:
        for engine in engines:
            await stack.enter_async_context(engine.serve())
        given = (*flags(*engines), "--allowed-media-domains", "*", *more)
        proxy = await stack.enter_async_context(running(*given))
        await proxy.ready(200)
        for number, one in enumerate(bodies):
            await _ask(proxy, f"r{number}", one)
        await stop(proxy)
        assert proxy.process.stdout is not None
        text = (await proxy.process.stdout.read()).decode()
    assert SECRET not in text
    assert "example.com" not in text
    return [json.loads(line) for line in text.splitlines()]


async def _ask(proxy: Running, request_id: str, document: dict[str, Any]) -> None:
    headers = {"authorization": f"Bearer {SECRET}", "x-request-id": request_id}
    try:
        async with proxy.http.post(proxy.data + CHAT, json=document, headers=headers) as answer:
            await answer.read()
    except aiohttp.ClientError:
        assert document["stream"]


def body(*content: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(content)}], **fields}


async def test_all_requests_get_lines_of_how_they_went() -> None:
    e, pd = encoder(), decoder()
    bodies = [body(stubs.image(PICTURE), stream=True), body({"type": "nothing"}), body(stubs.text())]
    first, second, third = await lines([e, pd], "--access-log", "All", bodies=bodies)
    assert first.pop("time").startswith("20")
    assert 0 < first.pop("first_token_seconds") <= first.pop("seconds") < 60
    assert first.pop("received_bytes") > 100
    events = (stubs.ROLE_CHUNK, stubs.content_chunk("re"), stubs.content_chunk("d"), stubs.DONE)
    assert first == {
        "request_id": "r0",
        "method": "POST",
        "route": CHAT,
        "status": 200,
        "outcome": "answered",
        "sent_bytes": len(b"".join(events)),
        "encode": "encoded",
        "encoders": [e.address.removeprefix("http://")],
        "prefill": pd.address.removeprefix("http://"),
    }
    told = [second[name] for name in ("request_id", "status", "code", "outcome")]
    assert told == ["r1", 400, "invalid_request", "refused"]
    assert (third["request_id"], third["encode"]) == ("r2", "none")


async def test_by_default_only_what_fails_gets_a_line() -> None:
    async def behave(engine: StubEngine, request: Any, document: dict[str, Any]) -> Any:
        breaks = stubs.dies_after(stubs.ROLE_CHUNK, stubs.content_chunk("r"))
        return await (breaks if document.get("stream") else stubs.generate)(engine, request, document)

    bodies = [body(stubs.text()), body({"type": "nothing"}), body(stubs.text(), stream=True)]
    (said,) = await lines([decoder("pd0", behave)], bodies=bodies)
    assert (said["request_id"], said["status"], said["outcome"]) == ("r2", 200, "broken")


@pytest.mark.parametrize(("which", "count"), [("None", 0), ("Errors", 1)])
async def test_it_can_be_off(which: str, count: int) -> None:
    failing = decoder("pd0", stubs.status(500, {}))
    said = await lines([failing], "--access-log", which, bodies=[body(stubs.text())])
    assert [(one["status"], one["outcome"]) for one in said] == [(500, "failed")] * count
