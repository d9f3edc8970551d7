"""Engines that break HTTP or the connection itself: what clients see is right and whole, or shows that it is not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from epd.api.names import Role
from protocol.proxy import stubs
from protocol.proxy.proxies import proxy
from protocol.proxy.stubs import StubEngine, decoder, encoder, image, text
from unit.proxy.rawengine import Peer, raw_engine

OK = b"HTTP/1.1 200 OK\r\n"
STREAM_HEAD = OK + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


ROLE, CONTENT = chunk(stubs.ROLE_CHUNK), chunk(stubs.content_chunk("re"))


BUSY = {"error": {"message": "busy", "code": 503}}


@dataclass
class RawStub(StubEngine):
    """Writes bytes in answer to each request, then closes its connection, by RST if it `resets`."""

    pieces: tuple[bytes, ...] = ()
    resets: bool = False
    asked: int = field(default=0)

    async def _serve(self, peer: Peer) -> None:
        await peer.request()
        self.asked += 1
        await peer.send(*self.pieces)
        if self.resets:
            peer.reset()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[StubEngine]:
        async with raw_engine(self._serve) as engine:
            self.address = engine.address
            yield self


def raw(name: str, role: Role, *pieces: bytes, resets: bool = False) -> RawStub:
    return RawStub(name=name, role=role, behave=stubs.hangs, pieces=pieces, resets=resets)


EARLY: dict[str, tuple[tuple[bytes, ...], bool, str]] = {
    # name: what it writes, whether it resets, the cause of the retry
    "resets before the first byte": ((), True, "disconnected"),
    "closes before the first byte": ((), False, "disconnected"),
    "resets in its head": ((OK + b"content-",), True, "disconnected"),
    "resets after its head": ((STREAM_HEAD,), True, "disconnected"),
    "resets after the role": ((STREAM_HEAD, ROLE), True, "disconnected"),
    "closes in a chunk": ((STREAM_HEAD, ROLE, CONTENT[:9]), False, "disconnected"),
    "answers less than it announces": ((OK + b"content-length: 99\r\n\r\n{}",), False, "disconnected"),
    "answers garbage": ((b"\x16\x03\x01\x02\x00\x01 what?\r\n\r\n",), False, "protocol"),
    "answers HTTP/0.9": ((b"<html>hello</html>\n",), False, "protocol"),
    "answers a chunk without size": ((STREAM_HEAD, ROLE, b"zz\r\nhello\r\n"), False, "protocol"),
    "answers a head without end": ((OK + b"x-header: y\r\n" * 6000,), False, "protocol"),
    "answers two lengths": (
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",),
        False,
        "protocol",
    ),
}


@pytest.mark.parametrize(("pieces", "resets", "cause"), EARLY.values(), ids=EARLY.keys())
async def test_before_the_first_content_another_engine_answers(
    pieces: tuple[bytes, ...], resets: bool, cause: str
) -> None:
    bad, good = raw("bad", Role.PREFILL_DECODE, *pieces, resets=resets), decoder("good")
    async with proxy(encoder(), bad, good) as p:
        p.load.begin("good")  # the other one is asked first
        answer = await p.chat(image(), stream=True)
        assert (answer.status, answer.headers["x-epd-prefill"]) == (200, "good")
        assert (await answer.read()).endswith(stubs.DONE)
        assert (bad.asked, len(good.requests)) == (1, 1)
        assert p.value("epd_proxy_retries_total", role="prefill-decode", cause=cause) == 1
        await p.data_port.idle.wait()
        assert p.load.counts() == {"good": 1}


@pytest.mark.parametrize(("pieces", "resets", "reason"), EARLY.values(), ids=EARLY.keys())
async def test_encoders_that_break_are_passed_by(pieces: tuple[bytes, ...], resets: bool, reason: str) -> None:
    bad, good, pd = raw("bad", Role.ENCODE, *pieces, resets=resets), encoder("good"), decoder()
    async with proxy(bad, good, pd) as p:
        p.load.begin("good", 9)
        answer = await p.chat(image())
        assert (answer.status, answer.headers["x-epd-encoders"]) == (200, "good")
        assert p.value("epd_proxy_retries_total", role="encode", cause=reason) == bad.asked == 1
    async with proxy(bad, pd) as p:
        answer = await p.chat(image())
        assert (answer.status, answer.headers["x-epd-encode"]) == (200, "fallback")
        assert p.value("epd_proxy_fallbacks_total", reason=reason) == 1


LATE: dict[str, tuple[tuple[bytes, ...], bool]] = {
    "resets": ((), True),
    "closes": ((), False),
    "closes in a chunk": ((CONTENT[:9],), False),
    "answers garbage": ((b"zz\r\n\x00\xff\r\n",), False),
    "ends without a last chunk": ((chunk(stubs.DONE),), False),
    "announces a huge chunk": ((b"7fffffffffffffff\r\ndata: x\n\n",), False),
}


@pytest.mark.parametrize(("pieces", "resets"), LATE.values(), ids=LATE.keys())
async def test_after_the_first_content_a_broken_stream_never_looks_complete(
    pieces: tuple[bytes, ...], resets: bool
) -> None:
    bad, other = raw("bad", Role.PREFILL_DECODE, STREAM_HEAD, ROLE, CONTENT, *pieces, resets=resets), decoder("other")
    async with proxy(bad, other) as p:
        p.load.begin("other")
        answer = await p.chat(text(), stream=True)
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
        assert other.requests == []
        await p.data_port.idle.wait()
        assert p.load.counts() == {"other": 1}


REFUSALS = {
    "429": (429, {"retry-after": "7"}),
    "400": (400, {}),
    "404": (404, {}),
}


@pytest.mark.parametrize(("status", "headers"), REFUSALS.values(), ids=REFUSALS.keys())
async def test_a_refusal_is_the_answer_and_asked_for_once(status: int, headers: dict[str, str]) -> None:
    body = {"error": {"message": "no", "code": status}}

    async def behave(engine: StubEngine, request: Any, document: dict[str, Any]) -> stubs.web.StreamResponse:
        return stubs.web.json_response(body, status=status, headers=headers)

    engines = [decoder(name, behave=behave) for name in ("pd0", "pd1")]
    async with proxy(*engines) as p:
        answer = await p.chat(text(), stream=True)
        assert (answer.status, await answer.json()) == (status, body)
        assert answer.headers.get("retry-after") == headers.get("retry-after")
        assert sum(len(engine.requests) for engine in engines) == 1


async def test_in_a_crowd_every_request_gets_its_own_answer_or_a_refusal() -> None:
    """Every engine fails in another way each time, and answers every third time."""

    async def behave(engine: StubEngine, request: Any, document: dict[str, Any]) -> stubs.web.StreamResponse:
        said = document["messages"][0]["content"][0]["text"]
        echo = stubs.streams(stubs.ROLE_CHUNK, stubs.content_chunk(said), stubs.DONE)
        faults = (echo, stubs.status(503, BUSY), stubs.dies_after(stubs.ROLE_CHUNK))
        return await faults[len(engine.requests) % 3](engine, request, document)

    async with proxy(*(decoder(f"pd{number}", behave=behave) for number in range(4))) as p:

        async def one(number: int) -> int:
            answer = await p.chat(text(f"number {number}"), stream=True)
            body = await answer.read()
            if answer.status == 200:
                assert body == stubs.ROLE_CHUNK + stubs.content_chunk(f"number {number}") + stubs.DONE
            else:
                assert json.loads(body)["error"]["code"] in (503, "engine_unavailable")
            return answer.status

        statuses = [status for _ in range(4) for status in await asyncio.gather(*map(one, range(20)))]
        assert set(statuses) == {200, 503}
        await p.data_port.idle.wait()
        assert p.load.counts() == {}
