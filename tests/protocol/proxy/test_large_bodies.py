"""A body of 64 MiB, the most that is taken by default, through the real process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from epd.proxy.settings import Limits
from protocol.proxy import stubs
from protocol.proxy.processes import running, servers
from protocol.proxy.stubs import CHAT, decoder, encoder, image

GROWTH_BYTES = 2 * Limits().max_body_bytes
"""Its size once, and what the process asks for beside (docs/proxy.md, "Memory and time")."""


def most_memory(pid: int) -> int:
    """The most bytes that a process ever had (proc(5))."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) << 10


def body_of(size: int) -> bytes:
    """A chat about one picture that has so many bytes in all."""
    head, tail = json.dumps({"messages": [{"role": "user", "content": [image("data:image/png;base64,@")]}]}).split("@")
    return b"".join([head.encode(), b"A" * (size - len(head) - len(tail)), tail.encode()])


async def test_the_largest_body_reaches_both_engines_whole_and_a_larger_one_none() -> None:
    got: dict[str, int] = {}

    async def measures(
        engine: stubs.StubEngine, request: stubs.web.Request, document: dict[str, Any]
    ) -> stubs.web.StreamResponse:
        [part] = document["messages"][0]["content"]
        got[engine.name] = len(part["image_url"]["url"])
        usual = stubs.encode if engine.name == "e0" else stubs.generate
        return await usual(engine, request, document)

    limit = Limits().max_body_bytes
    body = body_of(limit)
    e, pd = encoder(behave=measures), decoder(behave=measures)
    async with e.serve(), pd.serve(), running(*servers(e, pd)) as proxy:
        await proxy.ready(200)
        assert (await proxy.chat()).status == 200
        before = most_memory(proxy.process.pid)
        answer = await proxy.http.post(proxy.data + CHAT, data=body)
        assert (answer.status, answer.headers["x-epd-encode"]) == (200, "encoded")
        url = len(json.loads(body_of(1000))["messages"][0]["content"][0]["image_url"]["url"]) + limit - 1000
        assert got == {"e0": url, "pd0": url}
        assert most_memory(proxy.process.pid) - before < GROWTH_BYTES
        answer = await proxy.http.post(proxy.data + CHAT, data=body + b" ")
        assert (answer.status, (await answer.json())["error"]["code"]) == (413, "body_too_large")
        assert [len(engine.requests) for engine in (e, pd)] == [2, 2]
