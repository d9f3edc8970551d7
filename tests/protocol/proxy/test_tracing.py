"""Traces of the real process, as a collector gets them: one trace per request, right parents, whatever happens."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from epd.api.names import Role
from epd.proxy.stored import new_id
from protocol.proxy import stubs
from protocol.proxy.collector import Collector, Span, collecting
from protocol.proxy.processes import Running, flags, running, stop
from protocol.proxy.stubs import CHAT, StubEngine, decoder, encoder

CLIENT = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "vendor=x"}
SERVER = f"POST {CHAT}"


@asynccontextmanager
async def traced(
    *engines: StubEngine, environ: Mapping[str, str] | None = None, more: Sequence[str] = ()
) -> AsyncIterator[tuple[Running, Collector]]:
    async with AsyncExitStack() as stack:
        for engine in engines:
            await stack.enter_async_context(engine.serve())
        collector = await stack.enter_async_context(collecting())
        told = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "20", **(environ or {})}
        proxy = await stack.enter_async_context(running(*flags(*engines), *more, environ=told))
        await proxy.ready(200)
        yield proxy, collector


async def ask(proxy: Running, *content: object, headers: Mapping[str, str] = CLIENT, **fields: object) -> int:
    body = {"model": "tiny", "messages": [{"role": "user", "content": list(content)}], **fields}
    async with proxy.http.post(proxy.data + CHAT, json=body, headers=headers) as answer:
        await answer.read()
        return answer.status


async def until_queued(proxy: Running, requests: int) -> None:
    while True:
        async with proxy.http.get(f"{proxy.admin}/status") as answer:
            if (await answer.json())["queued"] == requests:
                return
        await asyncio.sleep(0.02)


def tree(spans: list[Span]) -> dict[str, list[str]]:
    """Names of parents with those of their children; the client is `client`."""
    names = {span.id: span.name for span in spans} | {"b7ad6b7169203331": "client", "": "nobody"}
    found: dict[str, list[str]] = {}
    for span in spans:
        found.setdefault(names[span.parent], []).append(span.name)
    return found


def sent_parent(engine: StubEngine, at: int = 0) -> tuple[str, str]:
    """The trace and the span that an engine was told of."""
    match = re.fullmatch(r"00-([0-9a-f]{32})-([0-9a-f]{16})-01", engine.headers[at]["traceparent"])
    assert match is not None
    return match[1], match[2]


@pytest.mark.parametrize("streaming", [False, True])
async def test_client_encoder_and_prefill_side_are_one_trace(streaming: bool) -> None:
    e, pd = encoder(), decoder()
    async with traced(e, pd) as (proxy, collector):
        assert await ask(proxy, stubs.text(), stubs.image(), stream=streaming) == 200
        spans = await collector.finished(SERVER)
    assert tree(spans) == {"client": [SERVER], SERVER: ["encode", "prefill-decode"]}
    assert {span.trace for span in spans} == {"0af7651916cd43dd8448eb211c80319c"}
    server, encode, prefill = spans
    assert sent_parent(e) == (encode.trace, encode.id)
    assert sent_parent(pd) == (prefill.trace, prefill.id)
    assert pd.headers[0]["tracestate"] == "vendor=x"
    assert (server.kind, encode.kind, prefill.kind) == ("SERVER", "CLIENT", "CLIENT")
    assert server.begun <= encode.begun <= encode.ended <= prefill.begun <= prefill.ended
    first_token = server.attributes.pop("epd.time_to_first_token", None)
    assert (first_token is not None) == streaming
    told = {
        name: server.attributes[name] for name in server.attributes if not name.endswith((".size", "_id", ".items"))
    }
    assert told == {
        "http.request.method": "POST",
        "http.route": CHAT,
        "url.path": CHAT,
        "url.scheme": "http",
        "http.response.status_code": 200,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "tiny",
        "epd.outcome": "answered",
        "epd.encode": "encoded",
        "epd.encoders": [e.address.removeprefix("http://")],
        "epd.prefill": pd.address.removeprefix("http://"),
    }
    assert server.attributes["http.response.body.size"] > 0
    assert prefill.attributes["server.address"] == pd.address.removeprefix("http://")
    assert prefill.attributes["epd.pairing"] == "static"
    assert collector.resource["service.name"] == "epd-proxy"


async def test_prefill_and_decode_are_two_spans() -> None:
    async def prefill(engine: StubEngine, request: object, document: object) -> stubs.web.StreamResponse:
        return stubs.web.json_response({"choices": [], "kv_transfer_params": {"remote_host": "10.0.0.9"}})

    e = encoder()
    p, d = StubEngine("p0", Role.PREFILL, prefill), StubEngine("d0", Role.DECODE, stubs.generate)
    async with traced(e, p, d) as (proxy, collector):
        assert await ask(proxy, stubs.image()) == 200
        spans = await collector.finished(SERVER)
    assert tree(spans) == {"client": [SERVER], SERVER: ["encode", "prefill", "decode"]}


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_retry_is_a_second_span_and_an_event(streaming: bool) -> None:
    sick = stubs.streams(stubs.ROLE_CHUNK, stubs.event(stubs.IN_STREAM_ERROR)) if streaming else stubs.status(500, {})
    cause = "stream-error" if streaming else "status"
    one, other = decoder("pd0", sick), decoder("pd1")
    async with traced(one, other) as (proxy, collector):
        asked = 0
        while not one.requests:
            # either may be the first that is chosen
            asked += 1
            assert await ask(proxy, stubs.text(), stream=streaming) == 200
        spans = await collector.finished(SERVER, asked)
    server = next(span for span in spans if span.events)
    assert server.events == [("retry", {"epd.role": "prefill-decode", "error.type": cause})]
    assert server.attributes["epd.retries"] == [f"prefill-decode:{cause}"]
    calls = [span for span in spans if span.parent == server.id]
    assert [span.name for span in calls] == ["prefill-decode"] * 2
    assert [span.attributes["server.address"] for span in calls] == [
        one.address.removeprefix("http://"),
        other.address.removeprefix("http://"),
    ]
    if not streaming:
        assert [(span.failed, span.attributes.get("error.type")) for span in calls] == [(True, "500"), (False, None)]
    assert not server.failed


@pytest.mark.parametrize("in_vain", [False, True])
async def test_a_wait_for_room_is_a_span(in_vain: bool) -> None:
    gate = asyncio.Event()

    async def behave(engine: StubEngine, request: web.Request, document: dict[str, Any]) -> web.StreamResponse:
        await gate.wait()
        return await stubs.generate(engine, request, document)

    pd = decoder("pd0", behave)
    patience = "1s" if in_vain else "60s"
    async with traced(pd, more=("--max-in-flight-per-engine", "1", "--queue-timeout", patience)) as (proxy, collector):
        first = asyncio.create_task(ask(proxy, stubs.text()))
        await pd.started.wait()
        second = asyncio.create_task(ask(proxy, stubs.text()))
        if in_vain:
            assert await second == 503
        else:
            await until_queued(proxy, 1)
        gate.set()
        assert [await first, await second] == [200, 503 if in_vain else 200]
        spans = await collector.finished(SERVER, 2)
    [wait] = [span for span in spans if span.name == "queue"]
    [waited] = [span for span in spans if span.id == wait.parent]
    assert [span.name for span in spans if span.parent == waited.id] == ["queue", "prefill-decode"][: 2 - in_vain]
    assert waited.begun <= wait.begun <= wait.ended <= waited.ended
    assert (wait.kind, wait.failed) == ("INTERNAL", in_vain)
    assert wait.attributes == ({"error.type": "queue_timeout"} if in_vain else {})


async def test_ids_of_stored_responses_are_in_no_span() -> None:
    pd = decoder()
    async with traced(pd) as (proxy, collector):
        name = pd.address.removeprefix("http://")
        async with proxy.http.get(proxy.data + f"/v1/responses/{new_id(name)}?stream=true") as answer:
            assert answer.status == 404
        spans = await collector.finished("GET /v1/responses/{id}")
    server, call = spans
    assert server.attributes["url.path"] == "/v1/responses/REDACTED"
    assert call.attributes["url.full"] == pd.address + "/v1/responses/REDACTED"
    assert "resp_" not in str([span.attributes for span in spans])


async def test_a_fallback_shows_the_encoder_that_failed() -> None:
    e, pd = encoder("e0", stubs.dies_after()), decoder()
    async with traced(e, pd) as (proxy, collector):
        assert await ask(proxy, stubs.image()) == 200
        spans = await collector.finished(SERVER)
    assert tree(spans) == {"client": [SERVER], SERVER: ["encode", "prefill-decode"]}
    server, encode, _ = spans
    assert (encode.failed, encode.attributes["error.type"]) == (True, "disconnected")
    assert server.attributes["epd.encode"] == "fallback"


async def test_what_fails_is_an_error_and_what_the_client_did_wrong_is_none() -> None:
    broken = decoder("pd0", stubs.dies_after(stubs.ROLE_CHUNK, stubs.content_chunk("r")))
    async with traced(broken) as (proxy, collector):
        with pytest.raises(aiohttp.ClientError):
            await ask(proxy, stubs.text(), stream=True)
        assert await ask(proxy, {"type": "nothing"}) == 400
        spans = await collector.finished(SERVER, 2)
    told = [(s.failed, s.attributes["epd.outcome"]) for s in spans if s.name == SERVER]
    assert sorted(told) == [(False, "refused"), (True, "broken")]


async def test_without_a_parent_it_begins_a_trace_and_a_parent_may_say_no() -> None:
    pd = decoder()
    async with traced(pd) as (proxy, collector):
        unsampled = CLIENT["traceparent"][:-1] + "0"
        assert await ask(proxy, stubs.text(), headers={"traceparent": unsampled}) == 200
        assert await ask(proxy, stubs.text(), headers={"traceparent": "nonsense"}) == 200
        spans = await collector.finished(SERVER)
    assert tree(spans) == {"nobody": [SERVER], SERVER: ["prefill-decode"]}
    assert pd.headers[0]["traceparent"].startswith("00-0af7651916cd43dd8448eb211c80319c-")
    assert pd.headers[0]["traceparent"].endswith("-00")


async def test_the_sampler_is_read_from_the_environment() -> None:
    pd = decoder()
    environ = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"}
    async with traced(pd, environ=environ) as (proxy, collector):
        assert await ask(proxy, stubs.text()) == 200
        await stop(proxy)
        assert collector.spans == []
    assert pd.headers[0]["traceparent"].endswith("-00")


async def test_the_last_spans_are_sent_when_the_process_ends() -> None:
    async with traced(decoder(), environ={"OTEL_BSP_SCHEDULE_DELAY": "60000"}) as (proxy, collector):
        assert await ask(proxy, stubs.text()) == 200
        await stop(proxy)
        assert tree(collector.spans) == {"client": [SERVER], SERVER: ["prefill-decode"]}


async def test_a_collector_that_is_gone_costs_one_line() -> None:
    gone = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    async with traced(decoder(), environ=gone) as (proxy, _):
        for _ in range(20):
            assert await ask(proxy, stubs.text()) == 200
        log = await stop(proxy)
    assert log.count("traces can't be sent") == 1
    assert "Traceback" not in log
    assert "opentelemetry" not in log


async def test_without_an_endpoint_the_clients_headers_travel_on() -> None:
    pd = decoder()
    off = {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}
    async with traced(pd, environ=off) as (proxy, collector):
        assert await ask(proxy, stubs.text()) == 200
    assert {name: pd.headers[0][name] for name in CLIENT} == CLIENT
    assert collector.spans == []
