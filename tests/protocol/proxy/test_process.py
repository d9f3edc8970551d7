"""The real process, in static mode: flags, readiness, drain."""

from __future__ import annotations

import asyncio
import re
import signal
from dataclasses import dataclass
from typing import Any

import aiohttp

from protocol.proxy import stubs
from protocol.proxy.processes import running, servers, start
from protocol.proxy.stubs import CHAT, decoder, encoder


async def test_sigterm_lets_requests_end_and_exits_0() -> None:
    release = asyncio.Event()

    async def slow(engine: stubs.StubEngine, request: stubs.web.Request, document: dict[str, object]) -> object:
        response = stubs.web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(stubs.ROLE_CHUNK + stubs.content_chunk("re"))
        await release.wait()
        await response.write(stubs.content_chunk("d") + stubs.DONE)
        return response

    e, pd = encoder(), decoder(behave=slow)  # type: ignore[arg-type] # returns a StreamResponse
    async with e.serve(), pd.serve(), running(*servers(e, pd), "--drain-delay", "1s") as proxy:
        await proxy.ready(200)
        streaming = await proxy.chat(stream=True)
        assert streaming.headers["x-epd-encoders"] == e.address.removeprefix("http://")
        proxy.process.send_signal(signal.SIGTERM)
        await wait_until_closed(proxy.data)
        assert proxy.process.returncode is None
        release.set()
        assert (await streaming.read()).endswith(stubs.content_chunk("d") + stubs.DONE)
        assert await proxy.process.wait() == 0


async def test_sigterm_lets_requests_end_wherever_they_are() -> None:
    release = asyncio.Event()

    async def prime(
        engine: stubs.StubEngine, request: stubs.web.Request, document: dict[str, Any]
    ) -> stubs.web.StreamResponse:
        await release.wait()
        return await stubs.encode(engine, request, document)

    async def answer(
        engine: stubs.StubEngine, request: stubs.web.Request, document: dict[str, Any]
    ) -> stubs.web.StreamResponse:
        await release.wait()
        return await stubs.generate(engine, request, document)

    e, pd = encoder(behave=prime), decoder(behave=answer)
    async with e.serve(), pd.serve(), running(*servers(e, pd), "--drain-delay", "1s") as proxy:
        await proxy.ready(200)
        priming = asyncio.create_task(proxy.chat(stream=True))
        body = {"messages": [{"role": "user", "content": "hello"}], "stream": True}
        waiting = asyncio.create_task(proxy.http.post(proxy.data + CHAT, json=body))
        host, _, port = proxy.data.removeprefix("http://").partition(":")
        reader, sending = await asyncio.open_connection(host, int(port))
        sending.write(f"POST {CHAT} HTTP/1.1\r\nhost: p\r\ncontent-length: 15\r\n\r\n{{".encode())
        await e.started.wait()
        await pd.started.wait()
        await proxy.in_flight(3)
        proxy.process.send_signal(signal.SIGTERM)
        await wait_until_closed(proxy.data)
        release.set()
        for task in (priming, waiting):
            assert (await (await task).read()).endswith(stubs.DONE)
        sending.write(b'"messages":[]}')
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in head.lower()
        sending.close()
        assert await proxy.process.wait() == 0


@dataclass
class KeepAliveClient:
    """Sends one request after the other on one connection, and makes a new one only where it was told to.

    `addresses` is where connections go to, as a service's endpoints: the first is taken.
    """

    addresses: list[str]
    answers: int = 0
    closes: int = 0

    async def run(self, until: asyncio.Event) -> None:
        """Any failure ends this with an exception."""
        body = b'{"messages":[{"role":"user","content":"hello"}],"stream":%s}'
        while not until.is_set():
            host, _, port = self.addresses[0].removeprefix("http://").partition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            closing = False
            while not (closing or until.is_set()):
                sent = body % (b"true" if self.answers % 2 else b"false")
                head = f"POST {CHAT} HTTP/1.1\r\nhost: p\r\ncontent-length: {len(sent)}\r\n\r\n".encode()
                writer.write(head + sent)
                closing = await self._answer(reader)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert head.startswith(b"http/1.1 200 "), head
        if b"transfer-encoding: chunked" in head:
            assert (await reader.readuntil(b"\r\n0\r\n\r\n")).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        else:
            length = re.search(rb"content-length: (\d+)", head)
            assert length is not None
            assert b"red from" in await reader.readexactly(int(length[1]))
        self.answers += 1
        closes = b"connection: close" in head
        self.closes += closes
        return closes


async def test_a_rolling_update_under_load_fails_no_request() -> None:
    e, pd, over = encoder(), decoder(), asyncio.Event()
    flags = ("--drain-delay", "2s")
    async with e.serve(), pd.serve(), running(*servers(e, pd), *flags) as old, running(*servers(e, pd)) as new:
        await old.ready(200)
        await new.ready(200)
        addresses = [old.data]
        clients = [KeepAliveClient(addresses) for _ in range(50)]
        tasks = [asyncio.create_task(client.run(over)) for client in clients]
        await stubs.until(lambda: all(client.answers for client in clients))
        # as in a cluster: endpoints lose the pod at about the time it gets its signal
        old.process.send_signal(signal.SIGTERM)
        addresses.insert(0, new.data)
        assert await asyncio.wait_for(old.process.wait(), 30) == 0
        ended = [client.answers for client in clients]
        await stubs.until(lambda: all(client.answers > before for client, before in zip(clients, ended, strict=True)))
        over.set()
        await asyncio.gather(*tasks)
        # each was told once, and found the other
        assert [client.closes for client in clients] == [1] * 50


async def test_endpoints_that_still_point_here_are_served_and_a_second_signal_ends_it() -> None:
    e, pd = encoder(), decoder()
    async with e.serve(), pd.serve(), running(*servers(e, pd), "--drain-delay", "1h") as proxy:
        await proxy.ready(200)
        proxy.process.send_signal(signal.SIGTERM)
        await proxy.ready(503)
        late = await proxy.http.get(f"{proxy.data}/v1/models")
        assert (late.status, late.headers["connection"]) == (200, "close")
        proxy.process.send_signal(signal.SIGTERM)
        assert await proxy.process.wait() == 0


async def test_the_drain_timeout_breaks_off_what_is_left() -> None:
    e, pd = encoder(), decoder(behave=stubs.hangs)
    flags = ("--drain-delay", "1s", "--drain-timeout", "1s")
    async with e.serve(), pd.serve(), running(*servers(e, pd), *flags) as proxy:
        await proxy.ready(200)
        request = asyncio.create_task(proxy.chat())
        await pd.started.wait()
        proxy.process.send_signal(signal.SIGTERM)
        assert await proxy.process.wait() == 0
        await asyncio.wait([request])
        assert isinstance(request.exception(), aiohttp.ClientError)


async def test_a_dead_static_engine_is_not_in_rotation() -> None:
    e, pd = encoder(), decoder()
    async with pd.serve(), running(*servers(await _once(e), pd)) as proxy:
        await proxy.ready(200)
        answer = await proxy.chat()
        assert (answer.status, answer.headers["x-epd-encode"]) == (200, "fallback")
        topology = await (await proxy.http.get(f"{proxy.admin}/topology")).json()
        assert {m["role"]: m["ready"] for m in topology["members"]} == {"encode": False, "prefill-decode": True}


async def test_contradicting_flags_exit_2_and_say_why() -> None:
    process = await start("--encode-servers-urls", "http://a:1", "--prefill-servers-urls", "http://a:2")
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert "--decode-servers-urls is missing" in errors.decode()


async def _once(engine: stubs.StubEngine) -> stubs.StubEngine:
    """Give `engine` an address where nobody listens any more."""
    async with engine.serve():
        return engine


async def wait_until_closed(url: str) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    while True:
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except ConnectionRefusedError:
            return
        writer.close()
        await asyncio.sleep(0.05)
