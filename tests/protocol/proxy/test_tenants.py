"""API keys over sockets: who is refused, what engines see of tenants, and keys that change while requests are sent."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from epd.proxy.isolation import TenantIsolation
from epd.proxy.settings import Limits
from protocol.proxy import stubs
from protocol.proxy.dialectengines import stores
from protocol.proxy.processes import Running, running, servers, start
from protocol.proxy.proxies import Proxy, proxy
from protocol.proxy.stubs import CHAT, decoder, encoder, image, text
from unit.proxy.mounts import Mount

A, B = "sk-aaaaaaaaaaaaaaaa", "sk-bbbbbbbbbbbbbbbb"
ACME, BETA = {"authorization": f"Bearer {A}"}, {"x-api-key": B}


def keys(path: Path) -> Path:
    return Mount(path / "keys", {"acme": A, "beta": B}).path


REFUSED: dict[str, dict[str, str]] = {
    "no key": {},
    "a wrong key": {"authorization": "Bearer sk-wrongwrongwrong"},
    "a wrong key of Anthropic's kind": {"x-api-key": "sk-wrongwrongwrong"},
    "no token": {"authorization": f"Basic {A}"},
    "more than the key": {"authorization": f"Bearer {A},{A}"},
    "bytes": {"authorization": "Bearer \udcff\udcfe"},
}


@pytest.mark.parametrize("headers", REFUSED.values(), ids=REFUSED.keys())
async def test_without_a_key_there_is_401_in_openais_shape(headers: dict[str, str], tmp_path: Path) -> None:
    e, pd = encoder(), decoder()
    async with proxy(e, pd, api_keys=keys(tmp_path)) as served:
        for method, path, body in (("POST", CHAT, {"messages": []}), ("GET", "/v1/models", None)):
            async with served.http.request(method, path, json=body, headers=headers) as answer:
                error = (await answer.json())["error"]
                assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
                assert (error["code"], error["type"], error["param"]) == (
                    "invalid_api_key",
                    "invalid_request_error",
                    None,
                )
        for path in ("/health", "/healthz"):
            async with served.http.get(path, headers=headers) as answer:
                assert answer.status == 200
        assert served.value("epd_proxy_requests_total", route=CHAT, code="401") == 1
    assert (e.requests, pd.requests) == ([], [])


async def test_a_connection_goes_on_after_a_refusal_and_with_another_key(tmp_path: Path) -> None:
    async with proxy(decoder(), api_keys=keys(tmp_path)) as served:
        url = served.http._base_url
        assert url is not None
        reader, writer = await asyncio.open_connection(url.host, url.port)
        body = json.dumps({"messages": [{"role": "user", "content": "x"}]}).encode()
        fields = {"x: y": 401, f"authorization: bearer {A}": 200, f"x-api-key: {B}": 200, "x: z": 401}
        for field, status in fields.items():
            head = f"POST {CHAT} HTTP/1.1\r\nhost: p\r\n{field}\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            answered = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
            assert int(answered.split(b" ")[1]) == status
            [length] = [line for line in answered.lower().split(b"\r\n") if line.startswith(b"content-length")]
            await reader.readexactly(int(length.split(b":")[1]))
        writer.close()


async def test_engines_see_no_key_and_streams_count_for_their_tenant(tmp_path: Path) -> None:
    e, pd = encoder(), decoder()
    async with proxy(e, pd, api_keys=keys(tmp_path)) as served:
        for headers in (ACME, BETA, {**ACME, **BETA}):
            async with await served.chat(image(), stream=True, headers=headers) as answer:
                assert (answer.status, (await answer.read()).endswith(stubs.DONE)) == (200, True)
            async with served.http.get("/v1/models", headers=headers) as answer:
                assert answer.status == 200
        seen = json.dumps([e.headers, pd.headers, e.requests, pd.requests])
        assert (A in seen, B in seen, "authorization" in seen) == (False, False, False)
        counted = [
            served.value("epd_proxy_tenant_requests_total", tenant=t, outcome="answered") for t in ("acme", "beta")
        ]
        assert counted == [4, 2]
        page = await (await served.admin.get("/metrics")).text()
        assert 'epd_proxy_tenant_requests_total{epd="demo",namespace="ns",outcome="answered",tenant="acme"} 4.0' in page
        assert (A in page, B in page) == (False, False)


def uuids(engine: stubs.StubEngine) -> list[Any]:
    return [part.get("uuid") for r in engine.requests for m in r["messages"] for part in m["content"] if "uuid" in part]


@pytest.mark.parametrize(("isolation", "distinct"), [(TenantIsolation.SHARED, 1), (TenantIsolation.SALTED, 2)])
async def test_the_same_picture_of_two_tenants(isolation: TenantIsolation, distinct: int, tmp_path: Path) -> None:
    release = asyncio.Event()

    async def prime(engine: stubs.StubEngine, request: Any, document: dict[str, Any]) -> Any:
        await release.wait()
        return await stubs.encode(engine, request, document)

    e, pd = encoder(behave=prime), decoder()
    async with proxy(e, pd, api_keys=keys(tmp_path), tenant_isolation=isolation) as served:
        sent = [asyncio.create_task(served.chat(image(), headers=headers)) for headers in (ACME, BETA, ACME)]
        await stubs.until(
            lambda: len(e.requests) == distinct and served.value("epd_proxy_encode_demand", role="encode") == 3
        )
        release.set()
        assert [(await task).status for task in sent] == [200] * 3
        # one primer for whoever shares the picture, while it is under way
        assert (len(e.requests), len(set(uuids(e))), len(set(uuids(pd)))) == (distinct, distinct, distinct)
        salts = [request.get("cache_salt") for request in pd.requests]
        assert len(set(salts)) == distinct
        assert (None in salts) == (isolation is TenantIsolation.SHARED)
        assert "cache_salt" not in e.requests[0]


async def test_a_tenants_bound_holds_for_streams_to_their_end(tmp_path: Path) -> None:
    pd = decoder(behave=stubs.hangs_after(stubs.ROLE_CHUNK, stubs.content_chunk("re")))
    limits = Limits(max_in_flight_per_tenant=1)
    async with proxy(pd, api_keys=keys(tmp_path), limits=limits) as served:
        streaming = await served.chat(text(), stream=True, headers=ACME)
        refused = await served.chat(text(), headers=ACME)
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert (await refused.json())["error"]["code"] == "tenant_overloaded"
        others = await served.chat(text(), stream=True, headers=BETA)
        assert others.status == 200
        assert served.value("epd_proxy_tenant_in_flight", tenant="acme") == 1
        for answer in (streaming, others):
            answer.close()
        await stubs.until(lambda: served.data_port.in_flight == 0)
        assert served.value("epd_proxy_tenant_in_flight", tenant="acme") == 0
        again = await served.chat(text(), stream=True, headers=ACME)
        assert again.status == 200
        again.close()
        await stubs.until(lambda: served.data_port.in_flight == 0)
        ended = [
            served.value("epd_proxy_tenant_requests_total", tenant="acme", outcome=outcome)
            for outcome in ("left", "overloaded", "answered")
        ]
        assert ended == [2, 1, 0]


async def test_a_tenant_that_fills_the_queue_leaves_room_for_others(tmp_path: Path) -> None:
    release = asyncio.Event()

    async def answer(engine: stubs.StubEngine, request: Any, document: dict[str, Any]) -> Any:
        await release.wait()
        return await stubs.generate(engine, request, document)

    pd = decoder(behave=answer)
    limits = Limits(max_in_flight_per_engine=1, queue=3)
    async with proxy(pd, api_keys=keys(tmp_path), limits=limits) as served:
        many = []
        for number in range(4):
            many.append(asyncio.create_task(served.chat(text(), headers=ACME)))
            await stubs.until(lambda: served.data_port.in_flight == number + 1)  # noqa: B023 - asked within this round
        assert (await served.chat(text(), headers=ACME)).status == 429
        other = asyncio.create_task(served.chat(text(), headers=BETA))
        refused = await many.pop()
        assert (refused.status, (await refused.json())["error"]["code"]) == (429, "queue_full")
        release.set()
        assert [(await task).status for task in (*many, other)] == [200] * 4
        assert served.data_port.exchange.admission.waiting == 0


async def test_stored_responses_are_their_tenants_alone(tmp_path: Path) -> None:
    engines = stores()
    async with proxy(*engines, api_keys=keys(tmp_path)) as served:

        async def ask(method: str, path: str, headers: dict[str, str], body: Any = None) -> tuple[int, dict[str, Any]]:
            async with served.http.request(method, path, json=body, headers=headers) as answer:
                return answer.status, await answer.json()

        made, response = await ask("POST", "/v1/responses", ACME, {"input": "x"})
        assert made == 200
        asked = sum(len(engine.paths) for engine in engines)
        target, following = f"/v1/responses/{response['id']}", {"input": "x", "previous_response_id": response["id"]}
        requests = [
            ("GET", target, None),
            ("POST", f"{target}/cancel", None),
            ("DELETE", target, None),
            ("POST", "/v1/responses", following),
        ]
        for method, path, body in requests:
            status, refusal = await ask(method, path, BETA, body)
            assert (status, refusal["error"]["code"]) == (400, "response_not_found")
        assert sum(len(engine.paths) for engine in engines) == asked
        for method, path, body in requests:
            status, answered_by = await ask(method, path, ACME, body)
            assert (status, answered_by["by"]) == (200, response["by"])


async def test_without_keys_all_is_as_before() -> None:
    e, pd = encoder(), decoder()
    async with proxy(e, pd) as served:
        for headers in ({}, ACME):
            async with await served.chat(image(), headers=headers) as answer:
                assert answer.status == 200
        assert [h.get("authorization") for h in pd.headers] == [None, ACME["authorization"]]
        assert "tenant" not in await (await served.admin.get("/metrics")).text()


async def answered(served: Running | Proxy, headers: dict[str, str]) -> int:
    url = served.data + "/v1/models" if isinstance(served, Running) else "/v1/models"
    async with served.http.get(url, headers=headers) as answer:
        return answer.status


async def test_a_running_proxy_takes_new_keys_and_loses_no_request(tmp_path: Path) -> None:
    e, pd, over = encoder(), decoder(), asyncio.Event()
    mount = Mount(tmp_path / "keys", {"acme": A, "beta": B})
    async with e.serve(), pd.serve(), running(*servers(e, pd), "--api-keys", str(mount.path)) as served:
        await served.ready(200)
        assert [await answered(served, headers) for headers in (ACME, BETA, {})] == [200, 200, 401]
        statuses: set[int] = set()

        async def load() -> None:
            while not over.is_set():
                statuses.add(await answered(served, ACME))

        loading = asyncio.create_task(load())
        new = "sk-cccccccccccccccc"
        mount.write({"acme": f"# the next one\n{new}\n{A}\nshort", "gamma": "not a key"})
        async with asyncio.timeout(30):
            while await answered(served, {"x-api-key": new}) != 200:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
        assert await answered(served, BETA) == 401
        over.set()
        await loading
        assert statuses == {200}
        # kept, though nothing of it is there any more
        (mount.path / "..data").unlink()
        assert served.process.stderr is not None
        async with asyncio.timeout(30):
            log = ""
            while "those in force stay" not in log:
                log += (await served.process.stderr.readline()).decode()
        assert [await answered(served, headers) for headers in (ACME, BETA)] == [200, 401]
        assert "'acme' line 4: a key has 16 characters at least" in log
        assert not [key for key in (A, B, new, "short") if key in log]


async def test_keys_that_cant_be_read_end_the_start(tmp_path: Path) -> None:
    process = await start("--decode-servers-urls", "http://127.0.0.1:1", "--api-keys", str(tmp_path / "nowhere"))
    _, errors = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode
    assert "nowhere" in errors.decode()
