"""Chromium without a screen, driven over its DevTools protocol. Knows nothing of what is looked at."""

from __future__ import annotations

import asyncio
import base64
import itertools
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp

from cluster.builds import BROWSERS

START_SECONDS = 60.0
"""It starts in a second, or in many on a machine that is busy."""


def find() -> str | None:
    """Where Chromium is, if it is installed."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


class Tab:
    """One tab. `problems` has what its console and its security policy said; `asked` the URLs that it asked for."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.problems: list[str] = []
        self.asked: list[str] = []
        self.loads = 0

    async def read(self) -> None:
        """Take what the browser says, until it ends."""
        async for message in self._socket:
            said = message.json()
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            elif said["method"] == "Network.requestWillBeSent":
                self.asked.append(said["params"]["request"]["url"])
            elif said["method"] == "Log.entryAdded":
                self.problems.append(said["params"]["entry"]["text"])
            elif said["method"] == "Runtime.exceptionThrown":
                self.problems.append(str(said["params"]["exceptionDetails"]))
            elif said["method"] == "Page.loadEventFired":
                self.loads += 1

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        said = await asyncio.wait_for(answer, START_SECONDS)
        assert "error" not in said, said
        result: dict[str, Any] = said["result"]
        return result

    async def open(self, url: str) -> None:
        """Load a page."""
        loads = self.loads
        await self.call("Page.navigate", url=url)
        async with asyncio.timeout(START_SECONDS):
            while self.loads == loads:  # noqa: ASYNC110 - the event comes by another task
                await asyncio.sleep(0.01)

    async def value(self, expression: str) -> Any:
        """What a JavaScript expression is in the page."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        async with asyncio.timeout(START_SECONDS):
            while not await self.value(expression):  # noqa: ASYNC110 - it becomes true in another process
                await asyncio.sleep(0.05)

    async def dark(self, *, on: bool) -> None:
        """Prefer dark colours, or light ones."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if on else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[feature])

    async def picture(self, *, width: int, height: int) -> bytes:
        """A PNG of the page."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])


@asynccontextmanager
async def browsing(path: str) -> AsyncIterator[Tab]:
    """Start Chromium with one tab; end it, and what it started."""
    with tempfile.TemporaryDirectory() as profile:
        # --no-sandbox: as root it has none; the page is ours
        process = await asyncio.create_subprocess_exec(
            path,
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
            *("--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"),
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            port = await asyncio.wait_for(_port(process), START_SECONDS)
            async with aiohttp.ClientSession() as http:
                async with http.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    pages = [page for page in await answer.json() if page["type"] == "page"]
                async with http.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    tab = Tab(socket)
                    reading = asyncio.create_task(tab.read())
                    for domain in ("Page", "Runtime", "Log", "Network"):
                        await tab.call(f"{domain}.enable")
                    yield tab
                    await tab.call("Browser.close")
                    reading.cancel()
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _port(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    said = b""
    while line := await process.stderr.readline():
        said += line
        if match := re.search(rb"DevTools listening on ws://127\.0\.0\.1:(\d+)/", line):
            return match[1].decode()
    raise AssertionError(f"Chromium ended: {said.decode()}")
