"""Clients that leave at each stage of a request, closing or resetting: nothing of them is left, and work is aborted."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from epd.proxy.settings import Limits
from protocol.proxy import stubs
from protocol.proxy.proxies import Proxy, proxy
from protocol.proxy.stubs import CHAT, StubEngine, decoder, encoder, image, text, until

HEAD = f"POST {CHAT} HTTP/1.1\r\nhost: p\r\n".encode()


def request(*content: Any, stream: bool = True) -> bytes:
    body = json.dumps({"messages": [{"role": "user", "content": list(content)}], "stream": stream}).encode()
    return HEAD + b"content-length: %d\r\n\r\n" % len(body) + body


async def never(p: Proxy, e: StubEngine, pd: StubEngine) -> None:
    """Nothing to wait for but that the bytes were read."""
    await until(lambda: p.data_port.in_flight > 0)


async def no_turn(p: Proxy, e: StubEngine, pd: StubEngine) -> None:
    """A head that is not complete is no request yet; the connection is there."""
    await asyncio.sleep(0.01)


async def encoding(p: Proxy, e: StubEngine, pd: StubEngine) -> None:
    await e.started.wait()


async def asked(p: Proxy, e: StubEngine, pd: StubEngine) -> None:
    await pd.started.wait()


async def queued(p: Proxy, e: StubEngine, pd: StubEngine) -> None:
    await until(lambda: p.data_port.exchange.admission.waiting == 1)


@dataclass(frozen=True)
class Stage:
    """What the client sends, what the engines do with it, and when it has got so far."""

    sent: bytes
    reached: Callable[[Proxy, StubEngine, StubEngine], Awaitable[None]]
    encodes: stubs.Behaviour = stubs.encode
    answers: stubs.Behaviour = stubs.hangs
    aborted: tuple[str, ...] = ()
    """Engines that hear of it."""
    reads: bytes = b""
    """What the client has read when it leaves."""


BEGUN = (stubs.ROLE_CHUNK, stubs.content_chunk("re"))
STAGES = {
    "in its head": Stage(HEAD + b"content-le", no_turn),
    "in its body": Stage(request(text())[:-5], never),
    "in a body in chunks": Stage(HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\n{", never),
    "while media are encoded": Stage(request(image()), encoding, encodes=stubs.hangs, aborted=("e",)),
    "before a head of the engine": Stage(request(image()), asked, aborted=("pd",)),
    "before a whole answer": Stage(request(text(), stream=False), asked, aborted=("pd",)),
    "while a stream is held back": Stage(
        request(text()), asked, answers=stubs.hangs_after(stubs.ROLE_CHUNK), aborted=("pd",)
    ),
    "while it streams": Stage(
        request(text()), asked, answers=stubs.hangs_after(*BEGUN), aborted=("pd",), reads=stubs.content_chunk("re")
    ),
    "in a flood that it does not read": Stage(
        request(text()), asked, answers=stubs.streams(*BEGUN, *[stubs.content_chunk("x" * 60_000)] * 2000), reads=b"re"
    ),
}


def leave(writer: asyncio.StreamWriter, *, resets: bool) -> None:
    if resets:
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def connect(p: Proxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    base = p.http._base_url
    assert base is not None
    return await asyncio.open_connection(base.host, base.port)


async def nothing_is_left(p: Proxy) -> None:
    await asyncio.wait_for(p.data_port.idle.wait(), 10)
    await until(lambda: not p.load.counts())
    assert (p.data_port.in_flight, p.data_port.bodies.taken, p.data_port.exchange.admission.waiting) == (0, 0, 0)


@pytest.mark.parametrize("resets", [False, True], ids=["closes", "resets"])
@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES.keys())
async def test_nothing_is_left_of_a_client_that_leaves(stage: Stage, resets: bool) -> None:
    e, pd = encoder(behave=stage.encodes), decoder(behave=stage.answers)
    async with proxy(e, pd, room=10_000) as p:
        before = len(asyncio.all_tasks())
        reader, writer = await connect(p)
        writer.write(stage.sent)
        await stage.reached(p, e, pd)
        if stage.reads:
            await asyncio.wait_for(reader.readuntil(stage.reads), 10)
        leave(writer, resets=resets)
        await nothing_is_left(p)
        for name, engine in (("e", e), ("pd", pd)):
            if name in stage.aborted:
                await asyncio.wait_for(engine.aborted.wait(), 10)
        await until(lambda: len(asyncio.all_tasks()) <= before)
        # the next one is served
        e.behave, pd.behave = stubs.encode, stubs.generate
        assert (await p.chat(image(), text())).status == 200


@pytest.mark.parametrize("resets", [False, True], ids=["closes", "resets"])
async def test_a_client_that_leaves_the_queue_lets_the_next_one_pass(resets: bool) -> None:
    release = asyncio.Event()

    async def behave(engine: StubEngine, request: Any, document: dict[str, Any]) -> stubs.web.StreamResponse:
        await release.wait()
        return await stubs.generate(engine, request, document)

    e, pd = encoder(), decoder(behave=behave)
    async with proxy(e, pd, limits=Limits(max_in_flight_per_engine=1, queue=2, queue_seconds=60)) as p:
        first = asyncio.create_task(p.chat(text()))
        await pd.started.wait()
        _, leaving = await connect(p)
        leaving.write(request(text("I leave")))
        await queued(p, e, pd)
        third = asyncio.create_task(p.chat(text("I stay")))
        await until(lambda: p.data_port.exchange.admission.waiting == 2)
        leave(leaving, resets=resets)
        await until(lambda: p.data_port.exchange.admission.waiting == 1)
        release.set()
        assert [(await task).status for task in (first, third)] == [200, 200]
        said = [document["messages"][0]["content"][0]["text"] for document in pd.requests]
        assert said == [text()["text"], "I stay"]
        await nothing_is_left(p)
