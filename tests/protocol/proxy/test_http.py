"""The data port as an HTTP server: methods, headers, bodies, clients that are slow or leave in the middle."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from epd.proxy.settings import Limits
from protocol.proxy import stubs
from protocol.proxy.stubs import CHAT, Proxy, decoder, encoder, image, proxy, text, until

HELLO = json.dumps({"messages": [{"role": "user", "content": "hello"}]}).encode()


def address(p: Proxy) -> tuple[str, int]:
    base = p.http._base_url
    assert base is not None
    assert base.host is not None
    assert base.port is not None
    return base.host, base.port


async def raw(p: Proxy, *sent: bytes) -> tuple[bytes, asyncio.StreamWriter, asyncio.StreamReader]:
    """Send bytes; the first head that comes back, and the connection."""
    reader, writer = await asyncio.open_connection(*address(p))
    writer.write(b"".join(sent))
    return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10), writer, reader


def post(*headers: bytes, body: bytes = HELLO) -> bytes:
    lines = [f"POST {CHAT} HTTP/1.1".encode(), b"host: p", *headers, b"content-length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", CHAT, "POST"),
        ("HEAD", CHAT, "POST"),
        ("OPTIONS", CHAT, "POST"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("PUT", "/health", "GET, HEAD"),
    ],
)
async def test_another_method_is_405_and_names_the_right_one(method: str, path: str, allowed: str) -> None:
    pd = decoder()
    async with proxy(pd) as p:
        answer = await p.http.request(method, path)
        assert (answer.status, answer.headers["allow"]) == (405, allowed)
        assert pd.requests == []


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions/", "//v1/chat/completions", "/v1/chat%2Fcompletions", "/v1/x/../models", "/metrics"]
)
async def test_only_exact_paths_are_routes(path: str) -> None:
    async with proxy(decoder()) as p:
        head, writer, _ = await raw(p, b"GET " + path.encode() + b" HTTP/1.1\r\nhost: p\r\n\r\n")
        writer.close()
        assert head.startswith(b"HTTP/1.1 404 ")


async def test_the_answer_to_head_has_no_body_so_the_connection_stays_in_step() -> None:
    async with proxy(decoder()) as p:
        head, writer, reader = await raw(p, b"HEAD " + CHAT.encode() + b" HTTP/1.1\r\nhost: p\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 405 ")
        writer.write(b"GET /health HTTP/1.1\r\nhost: p\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_requests_follow_each_other_on_one_connection_also_after_refusals() -> None:
    async with proxy(decoder()) as p:
        head, writer, reader = await raw(p, post(body=b"{"))
        assert head.startswith(b"HTTP/1.1 400 ")
        for _ in range(2):
            writer.write(post())
        answers = b""
        while answers.count(b"red from pd0") < 2:
            answers += await asyncio.wait_for(reader.read(65536), 10)
        assert answers.count(b"HTTP/1.1 200 ") == 2
        writer.close()


async def test_a_client_that_expects_100_is_told_to_go_on() -> None:
    async with proxy(decoder()) as p:
        request = post(b"expect: 100-continue")
        head, writer, reader = await raw(p, request.removesuffix(HELLO))
        assert head == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(HELLO)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_only_headers_that_are_meant_for_engines_reach_them() -> None:
    e, pd = encoder(), decoder()
    sent = {
        "authorization": "Bearer k",
        "traceparent": "00-1-2-01",
        "tracestate": "a=b",
        "baggage": "c=d",
        "x-request-id": "r1",
    }
    kept_back = {
        "cookie": "a=b",
        "accept-encoding": "gzip",
        "te": "trailers",
        "x-forwarded-for": "1.2.3.4",
        "x-data-parallel-rank": "1",
        "proxy-authorization": "Basic x",
        "user-agent": "u",
    }
    async with proxy(e, pd) as p:
        assert (await p.chat(image(), headers={**sent, **kept_back})).status == 200
        for engine, request_id in ((e, "r1-e0"), (pd, "r1")):
            [headers] = engine.headers
            own = {name: headers.pop(name) for name in ("host", "content-length", "accept")}
            assert own["host"] == engine.address.removeprefix("http://")
            assert headers == {**sent, "x-request-id": request_id, "content-type": "application/json"}


async def test_only_headers_that_mean_something_reach_clients() -> None:
    async def behave(engine: object, request: object, document: object) -> stubs.web.StreamResponse:
        headers = {"set-cookie": "a=b", "server": "uvicorn", "x-inside": "1", "keep-alive": "timeout=5"}
        return stubs.web.json_response({"choices": []}, headers={**headers, "cache-control": "no-store"})

    async with proxy(decoder(behave=behave)) as p:
        answer = await p.chat(text())
        ours = {"x-request-id", "x-epd-encode", "x-epd-prefill", "x-epd-model-version"}
        http = {"date", "server", "content-length", "content-type"}
        assert {name.lower() for name in answer.headers} == ours | http | {"cache-control"}
        assert "uvicorn" not in answer.headers["server"]


async def test_a_redirect_of_an_engine_is_not_followed() -> None:
    other = decoder("other")

    async def behave(engine: object, request: object, document: object) -> stubs.web.StreamResponse:
        return stubs.web.Response(status=307, headers={"location": other.address + CHAT})

    async with other.serve(), proxy(decoder(behave=behave)) as p:
        answer = await p.http.post(CHAT, data=HELLO, allow_redirects=False)
        assert (answer.status, other.requests) == (307, [])
        assert "location" not in answer.headers


async def test_an_answer_that_an_engine_compressed_stays_so() -> None:
    body = gzip.compress(b'{"choices": []}')

    async def behave(engine: object, request: object, document: object) -> stubs.web.StreamResponse:
        return stubs.web.Response(body=body, headers={"content-encoding": "gzip"}, content_type="application/json")

    async with proxy(decoder(behave=behave)) as p:
        head, writer, reader = await raw(p, post())
        assert b"content-encoding: gzip" in head.lower()
        assert await reader.readexactly(len(body)) == body
        writer.close()


@pytest.mark.parametrize("name", [b"authorization", b"baggage"])
async def test_a_forwarded_header_that_is_not_ascii_is_refused(name: bytes) -> None:
    pd = decoder()
    async with proxy(pd) as p:
        for value in (b"Bearer \xff", "Bearer ü".encode()):
            head, writer, _ = await raw(p, post(name + b": " + value))
            writer.close()
            assert head.startswith(b"HTTP/1.1 400 ")
        assert pd.requests == []


@pytest.mark.parametrize("given", ["a b", "x" * 129, "ü", ""])
async def test_a_request_id_that_could_do_harm_is_replaced(given: str) -> None:
    pd = decoder()
    async with proxy(pd) as p:
        answer = await p.chat(text(), headers={"x-request-id": given})
        assert answer.headers["x-request-id"] == pd.headers[0]["x-request-id"]
        assert len(answer.headers["x-request-id"]) == 32


# bodies


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


# streams


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


# pods and clients that go in the middle


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
