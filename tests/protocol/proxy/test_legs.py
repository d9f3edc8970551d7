"""Prefill and decode as engines of their own, over sockets: they hand KV blocks over as with vLLM's NixlConnector."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from epd.api.names import Role
from epd.proxy.legs import PREFILL_ONLY
from protocol.proxy.apiservers import ApiServer
from protocol.proxy.processes import Running, running
from protocol.proxy.proxies import proxy
from protocol.proxy.stubs import (
    DONE,
    IN_STREAM_ERROR,
    ROLE_CHUNK,
    Behaviour,
    StubEngine,
    content_chunk,
    dies_after,
    encoder,
    event,
    generate,
    image,
    status,
    streams,
    text,
)

SPLIT = frozenset({Role.PREFILL, Role.DECODE})


@dataclass
class Blocks:
    """KV blocks that prefill engines hold for others, by request; a dead engine's can't be read."""

    held: dict[str, tuple[dict[str, Any], object]] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    taken: int = 0

    async def prefill(self, engine: StubEngine, request: web.Request, document: dict[str, Any]) -> web.StreamResponse:
        """Refuse what would not end after one token; else keep the blocks of the prompt (v1/nixl/pull_scheduler.py)."""
        ends = (document["stream"], document["max_tokens"], document["kv_transfer_params"])
        if ends != (False, 1, dict(PREFILL_ONLY)) or "stream_options" in document:
            return web.json_response({"error": {"message": f"no prefill: {ends}"}}, status=400)
        name = f"chatcmpl-{len(self.held)}-{engine.name}-é"
        params = {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_engine_id": engine.name,
            "remote_block_ids": [[1, 2, 3], []],
            "remote_request_id": name,
            "remote_host": "10.0.0.1",
            "remote_port": 5600,
            "tp_size": 1,
            "dcp_size": 1,
            "pp_size": 1,
            "remote_num_tokens": 2**70,
            "remote_blocks_expiry_time": 123456.78901234567,
            "remote_registration_generation": None,
            "transfer_mode": "pull",
        }
        self.held[name] = (params, document["messages"])
        choice = {"index": 0, "message": {"role": "assistant", "content": "r"}, "finish_reason": "length"}
        return web.json_response({"choices": [choice], "kv_transfer_params": params})

    def decode(self, behave: Behaviour = generate) -> Behaviour:
        """Take the blocks that the request names, of which nothing may have changed, and answer as `behave`."""

        async def answer(engine: StubEngine, request: web.Request, document: dict[str, Any]) -> web.StreamResponse:
            params = document["kv_transfer_params"]
            kept, messages = self.held.get(params["remote_request_id"], (None, None))
            if kept != params or messages != document["messages"] or params["remote_engine_id"] in self.dead:
                # kv_load_failure_policy "fail"
                return web.json_response(IN_STREAM_ERROR, status=500)
            del self.held[params["remote_request_id"]]
            self.taken += 1
            return await behave(engine, request, document)

        return answer

    def first(self, name: str, behave: Behaviour | None = None, **fields: Any) -> StubEngine:
        return StubEngine(name=name, role=Role.PREFILL, behave=behave or self.prefill, **fields)

    def last(self, name: str, behave: Behaviour | None = None, **fields: Any) -> StubEngine:
        return StubEngine(name=name, role=Role.DECODE, behave=self.decode(behave or generate), **fields)


async def test_blocks_are_handed_over_as_they_were_named() -> None:
    blocks = Blocks()
    engines = [*map(blocks.first, ("p0", "p1")), *map(blocks.last, ("d0", "d1"))]
    async with proxy(encoder(), *engines, roles=SPLIT | {Role.ENCODE}) as p:
        options = {"max_tokens": 7, "max_completion_tokens": 9, "stream_options": {"include_usage": True}}
        answers = await asyncio.gather(
            *[p.chat(text(), *[image()] * (n % 3), stream=bool(n % 2), **options) for n in range(16)]
        )
        assert [answer.status for answer in answers] == [200] * 16
        assert not any([b"transfer" in await answer.read() for answer in answers])
        assert {answer.headers["x-epd-prefill"] for answer in answers} == {"p0", "p1"}
        assert {answer.headers["x-epd-decode"] for answer in answers} == {"d0", "d1"}
        assert (blocks.held, blocks.taken, p.load.counts()) == ({}, 16, {})
    for engine in engines[2:]:
        sent = [{name: body[name] for name in options} for body in engine.requests]
        assert sent == [options] * len(engine.requests)


async def test_only_engines_of_one_pairing_work_together() -> None:
    blocks = Blocks()
    engines = [
        make(f"{pairing}-{make.__name__}{n}", pairing=pairing)
        for pairing in ("a", "b")
        for make in (blocks.first, blocks.last)
        for n in range(2)
    ]
    encoders = [encoder(f"{pairing}-e", pairing=pairing) for pairing in ("a", "b")]
    async with proxy(*engines, *encoders, roles=SPLIT | {Role.ENCODE}) as p:
        used = set()
        for n in range(12):
            answer = await p.chat(image(f"data:image/png;base64,AA{n:02}"))
            names = [answer.headers[f"x-epd-{part}"] for part in ("encoders", "prefill", "decode")]
            assert len({name[0] for name in names}) == 1
            used.add(names[0][0])
        assert (used, blocks.taken) == ({"a", "b"}, 12)
        # a pairing without engines that prefill is none
        p.members.replace(engine.member() for engine in engines if not engine.name.startswith("a-first"))
        assert {(await p.chat(text())).headers["x-epd-decode"][0] for _ in range(8)} == {"b"}


async def test_an_engine_that_prefilled_dies_before_its_blocks_are_read() -> None:
    blocks = Blocks()

    async def prefill_and_die(engine: StubEngine, request: web.Request, document: dict[str, Any]) -> web.StreamResponse:
        answer = await blocks.prefill(engine, request, document)
        blocks.dead.add(engine.name)
        engine.behave = dies_after()
        return answer

    dying, well, last = blocks.first("p0", prefill_and_die), blocks.first("p1"), blocks.last("d0")
    async with proxy(dying, well, last, roles=SPLIT) as p:
        p.load.begin("p1")
        answer = await p.chat(text(), stream=True)
        assert (answer.status, answer.headers["x-epd-prefill"]) == (200, "p1")
        assert (await answer.read()).endswith(DONE)
        assert (len(dying.requests), len(well.requests), len(last.requests)) == (1, 1, 2)
        assert (p.value("epd_proxy_retries_total", role="decode", cause="status"), p.load.counts()) == (1, {"p1": 1})
        # the dead one is known by then, and no request fails of it any more
        assert [(await p.chat(text())).status for _ in range(4)] == [200] * 4


FAILURES: dict[str, Behaviour] = {
    "breaks": dies_after(),
    "breaks after the role": dies_after(ROLE_CHUNK),
    "fails": status(500, IN_STREAM_ERROR),
    "fails within its stream": streams(ROLE_CHUNK, event(IN_STREAM_ERROR), DONE),
}


@pytest.mark.parametrize("alone", [False, True], ids=["another is there", "alone"])
@pytest.mark.parametrize("behave", FAILURES.values(), ids=FAILURES.keys())
async def test_an_engine_that_decodes_fails(behave: Behaviour, alone: bool) -> None:
    blocks = Blocks()
    failures = [behave]

    async def once(engine: StubEngine, request: web.Request, document: dict[str, Any]) -> web.StreamResponse:
        return await (failures.pop() if failures else generate)(engine, request, document)

    ill, well = blocks.last("d0", once), blocks.last("d1")
    async with proxy(blocks.first("p0"), ill, *([] if alone else [well]), roles=SPLIT) as p:
        p.load.begin("d1")
        answer = await p.chat(text(), stream=True)
        assert (answer.status, answer.headers["x-epd-decode"]) == (200, "d0" if alone else "d1")
        assert (await answer.read()) == ROLE_CHUNK + content_chunk("re") + content_chunk("d") + DONE
        # its blocks were taken along with the first try: the second has its own
        assert (blocks.held, blocks.taken, p.load.counts()) == ({}, 2, {"d1": 1})


async def test_an_engine_that_decodes_dies_in_mid_stream() -> None:
    blocks = Blocks()
    last = blocks.last("d0", dies_after(ROLE_CHUNK, content_chunk("re")))
    async with proxy(blocks.first("p0"), last, blocks.last("d1"), roles=SPLIT) as p:
        p.load.begin("d1")
        answer = await p.chat(text(), stream=True)
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
        assert blocks.taken == 1


def _labelled(engine: StubEngine) -> dict[str, Any]:
    port = int(engine.address.rpartition(":")[2])
    return {
        "metadata": {"name": engine.name, "labels": {"llm-d.ai/role": str(engine.role), "epd.dev/pairing": "a"}},
        "spec": {"containers": [{"name": "engine", "ports": [{"name": "http", "containerPort": port}]}]},
        "status": {"podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
    }


@asynccontextmanager
async def _process(engines: list[StubEngine], given: str, directory: Path) -> AsyncIterator[Running]:
    """A proxy process that finds `engines` by flags or by labels of pods."""
    async with AsyncExitStack() as stack:
        for engine in engines:
            await stack.enter_async_context(engine.serve())
        urls = {role: ",".join(e.address for e in engines if e.role is role) for role in Role}
        flags = [f"--{role}-servers-urls={urls[role]}" for role in (Role.ENCODE, Role.PREFILL, Role.DECODE)]
        environ = {}
        if given == "labels":
            server = ApiServer({engine.name: _labelled(engine) for engine in engines})
            cluster = {"server": await stack.enter_async_context(server.serve())}
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "test",
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
                "clusters": [{"name": "test", "cluster": cluster}],
                "users": [{"name": "test", "user": {"token": "t"}}],
            }
            (directory / "kubeconfig").write_text(yaml.safe_dump(config))
            environ["KUBECONFIG"] = str(directory / "kubeconfig")
            flags = ["--namespace", "ns", "--epd", "demo", "--roles", "encode,prefill,decode"]
        yield await stack.enter_async_context(running(*flags, environ=environ))


@pytest.mark.parametrize("given", ["flags", "labels"])
async def test_a_process_finds_both_kinds_of_engines(given: str, tmp_path: Path) -> None:
    blocks = Blocks()
    engines = [encoder(), blocks.first("p0"), *map(blocks.last, ("d0", "d1"))]
    async with _process(engines, given, tmp_path) as process:
        await process.ready(200)
        await process.healthy()
        for n in range(4):
            answer = await process.chat(stream=bool(n % 2))
            assert (answer.status, answer.headers["x-epd-encode"]) == (200, "encoded")
            assert b"d" in await answer.read()
        assert (blocks.taken, blocks.held) == (4, {})
        topology = json.loads(await (await process.http.get(f"{process.admin}/topology")).read())
        assert sorted(member["role"] for member in topology["members"]) == ["decode", "decode", "encode", "prefill"]
