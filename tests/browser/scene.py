"""A proxy with engines in several states, to look at: the real process, pods from an API server, stubs as engines.

python -m browser.scene FILE takes the picture of docs/proxy.md.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web
from PIL import Image

from browser import chromium
from protocol.proxy import stubs
from protocol.proxy.apiservers import ApiServer
from protocol.proxy.processes import Running, running
from protocol.proxy.stubs import CHAT, StubEngine, decoder, encoder

NAMESPACE, EPD = "ns", "qwen2-vl"
BUSY = 5
"""Requests that stay in flight."""
NOBODY = "http://127.0.0.1:9"
"""Where nothing listens (discard)."""


@dataclass
class Scene:
    """What there is to look at. `extra` pods may be added before the proxy starts."""

    proxy: Running

    @property
    def url(self) -> str:
        return f"{self.proxy.admin}/topology"

    async def chat(self, number: int, text: str = "What is it?") -> None:
        picture = f"data:image/png;base64,{number:08d}"
        content = [stubs.text(text), stubs.image(picture)]
        body = {"model": "tiny", "messages": [{"role": "user", "content": content}]}
        async with self.proxy.http.post(self.proxy.data + CHAT, json=body) as answer:
            await answer.read()


def pod(name: str, role: str, pairing: str, address: str, *, ready: bool = True) -> dict[str, Any]:
    version = f"v{pairing[-1]}-qwen2-vl-2b"
    labels = {"llm-d.ai/role": role, "epd.dev/pairing": pairing, "epd.dev/model-version": version}
    host, _, port = address.removeprefix("http://").partition(":")
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "engine", "ports": [{"name": "http", "containerPort": int(port)}]}]},
        "status": {"podIP": host, "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


async def _answers(engine: StubEngine, request: web.Request, document: dict[str, Any]) -> web.StreamResponse:
    held = "hold" in json.dumps(document["messages"])
    return await (stubs.hangs if held else stubs.generate)(engine, request, document)


@asynccontextmanager
async def scene(*odd: dict[str, Any]) -> AsyncIterator[Scene]:
    """Two versions in a rollout, an engine that is not ready and one that is ejected, and requests; `odd` pods too."""
    async with AsyncExitStack() as stack:
        e, pd = encoder(), decoder(behave=_answers)
        for engine in (e, pd):
            await stack.enter_async_context(engine.serve())
        pods = [
            pod("qwen2-vl-encode-6b7f9-x2v4k", "encode", "rev-1", e.address),
            pod("qwen2-vl-encode-6b7f9-zk8lp", "encode", "rev-1", NOBODY),
            pod("qwen2-vl-prefill-decode-5c9d4-7jq2m", "prefill-decode", "rev-1", pd.address),
            pod("qwen2-vl-prefill-decode-5c9d4-hw5tn", "prefill-decode", "rev-1", NOBODY, ready=False),
            pod("qwen2-vl-encode-74c8d-9sfqx", "encode", "rev-2", e.address),
            pod("qwen2-vl-prefill-decode-86fb7-t4b6c", "prefill-decode", "rev-2", pd.address),
            *odd,
        ]
        api = ApiServer(pods={one["metadata"]["name"]: one for one in pods})
        server = await stack.enter_async_context(api.serve())
        config = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "kubeconfig"
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        clusters = [{"name": "c", "cluster": {"server": server}}]
        users: list[dict[str, Any]] = [{"name": "u", "user": {}}]
        named = {"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [context]}
        config.write_text(json.dumps({**named, "clusters": clusters, "users": users}))
        environ = {"KUBECONFIG": str(config)}
        flags = ("--namespace", NAMESPACE, "--epd", EPD, "--access-log", "None")
        proxy = await stack.enter_async_context(running(*flags, environ=environ))
        await proxy.ready(200)
        shown = Scene(proxy)
        held = [asyncio.create_task(shown.chat(number, "hold")) for number in range(BUSY)]
        more = asyncio.create_task(_go_on(shown))
        await proxy.in_flight_at_least(BUSY)
        try:
            yield shown
        finally:
            for task in (*held, more):
                task.cancel()
            await asyncio.wait([*held, more])


async def _go_on(shown: Scene) -> None:
    for number in itertools.count(BUSY):
        await shown.chat(number)
        await asyncio.sleep(0.05)


async def take() -> bytes:
    """The picture."""
    found = chromium.find()
    assert found is not None, "install Chromium: python -m cluster browser"
    async with scene() as shown, chromium.browsing(found) as tab:
        await tab.dark(on=False)
        await tab.open(shown.url)
        await tab.until("[...document.querySelectorAll('dd[data-rate]')].some((cell) => +cell.textContent > 0)")
        picture = Image.open(io.BytesIO(await tab.picture(width=1120, height=600)))
    # a third of the size, and looks the same
    small = io.BytesIO()
    picture.convert("RGB").quantize(200).save(small, "png", optimize=True)
    return small.getvalue()


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(asyncio.run(take()))
