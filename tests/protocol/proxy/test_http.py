"""The data port as an HTTP server: methods, paths, headers, and requests that follow each other."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from protocol.proxy import stubs
from protocol.proxy.proxies import proxy
from protocol.proxy.rawclient import HELLO, post, raw
from protocol.proxy.stubs import CHAT, decoder, encoder, image, text


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
