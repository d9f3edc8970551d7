"""A reverse proxy in front of the API server that can make watches deaf: open, with bookmarks, and without events.

That is what a hung load balancer or cache does, and what no timeout of silence notices.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from apiserver.server import ApiServer

BOOKMARK_SECONDS = 1.0


class DeafProxy:
    """Passes everything on; while `deaf` is set, what watches deliver is swallowed."""

    def __init__(self, upstream: str, headers: dict[str, str], certificate: Path) -> None:
        self.deaf = threading.Event()
        self.port = 0
        self._upstream, self._headers = upstream, headers
        self._tls = ssl.create_default_context(cafile=certificate)

    async def serve(self, started: threading.Event) -> None:
        """Serve on a free port of loopback until `stop` is called."""
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as self._session:
            app = web.Application(client_max_size=2**24)
            app.router.add_route("*", "/{path:.*}", self._pass_on)
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.port = runner.addresses[0][1]
            started.set()
            await self._stop.wait()
            await runner.cleanup()

    def stop(self) -> None:
        """End `serve`, from another thread."""
        self._loop.call_soon_threadsafe(self._stop.set)

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k.lower() in ("accept", "content-type")}
        url = self._upstream + request.path_qs
        body = await request.read()
        sent = {"data": body or None, "headers": headers | self._headers, "skip_auto_headers": ("Content-Type",)}
        async with self._session.request(request.method, url, ssl=self._tls, **sent) as answer:
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            await response.prepare(request)
            if request.query.get("watch"):
                await self._watch(answer, response, request.path)
            else:
                await response.write(await answer.read())
            return response

    async def _watch(self, answer: aiohttp.ClientResponse, response: web.StreamResponse, path: str) -> None:
        plural = path.rsplit("/", 1)[1]
        while not self.deaf.is_set():
            try:
                line = await asyncio.wait_for(answer.content.readline(), BOOKMARK_SECONDS)
            except TimeoutError:
                continue
            if not line:
                return
            if not self.deaf.is_set():
                await response.write(line)
        while True:
            kind = {"epddeployments": "EPDDeployment"}.get(plural, plural.removesuffix("s").capitalize())
            metadata = {"resourceVersion": "1", "creationTimestamp": None}
            bookmark: dict[str, Any] = {"type": "BOOKMARK", "object": {"kind": kind, "metadata": metadata}}
            await response.write(json.dumps(bookmark).encode() + b"\n")
            await asyncio.sleep(BOOKMARK_SECONDS)


@contextlib.contextmanager
def deaf_proxy(api_server: ApiServer, state: Path) -> Iterator[tuple[DeafProxy, Path]]:
    """A proxy, and a kubeconfig that goes through it."""
    config = yaml.safe_load(api_server.kubeconfig.read_text())
    token = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
    proxy = DeafProxy(api_server.url, token, api_server.kubeconfig.parent / "pki" / "ca.crt")
    started = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(proxy.serve(started)), daemon=True)
    thread.start()
    assert started.wait(10)
    config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{proxy.port}"}
    path = state / "through-proxy"
    path.write_text(yaml.safe_dump(config))
    try:
        yield proxy, path
    finally:
        proxy.stop()
        thread.join(10)
