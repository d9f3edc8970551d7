"""The proxy as a process of its own: `python -m epd.proxy.main` on ports of its choice."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from epd.api.names import Role
from protocol.proxy import stubs
from protocol.proxy.stubs import CHAT, StubEngine, image

OPERATOR = Path(__file__).parents[3] / "operator"


@dataclass
class Running:
    process: asyncio.subprocess.Process
    data: str
    admin: str
    http: aiohttp.ClientSession

    async def ready(self, code: int) -> None:
        """Wait for readiness to answer `code`."""
        while True:
            async with self.http.get(f"{self.admin}/readyz") as answer:
                if answer.status == code:
                    return
            await asyncio.sleep(0.02)

    async def healthy(self) -> None:
        """Wait until a request would find its engines."""
        while True:
            async with self.http.get(f"{self.data}/health") as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(0.02)

    async def in_flight(self, requests: int) -> None:
        """Wait for as many requests."""
        while True:
            async with self.http.get(f"{self.admin}/status") as answer:
                if (await answer.json())["inFlight"] == requests:
                    return
            await asyncio.sleep(0.02)

    async def in_flight_at_least(self, requests: int) -> None:
        """Wait for no fewer requests."""
        while True:
            async with self.http.get(f"{self.admin}/status") as answer:
                if (await answer.json())["inFlight"] >= requests:
                    return
            await asyncio.sleep(0.02)

    async def chat(self, **fields: object) -> aiohttp.ClientResponse:
        body = {"messages": [{"role": "user", "content": [image()]}], **fields}
        return await self.http.post(self.data + CHAT, json=body)


async def start(*flags: str, environ: Mapping[str, str] | None = None) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "epd.proxy.main", "--host", "127.0.0.1", "--port", "0", "--admin-port", "0"),
        *flags,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(OPERATOR), **(environ or {})},
    )


@asynccontextmanager
async def running(*flags: str, environ: Mapping[str, str] | None = None) -> AsyncIterator[Running]:
    process = await start(*flags, environ=environ)
    ports: dict[str, str] = {}
    try:
        assert process.stderr is not None
        while len(ports) < 2:
            line = (await process.stderr.readline()).decode()
            assert line, "the proxy ended before it listened"
            if match := re.search(r"(data|admin) port listens on (\S+)", line):
                ports[match[1]] = f"http://{match[2]}"
        async with aiohttp.ClientSession() as http:
            yield Running(process, ports["data"], ports["admin"], http)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def servers(e: stubs.StubEngine, pd: stubs.StubEngine) -> tuple[str, ...]:
    """Flags for an encoder and a prefill side as scripts of vLLM give them, which name the role that is not there."""
    no_prefill = ("--prefill-servers-urls", "disable")
    return ("--encode-servers-urls", e.address, *no_prefill, "--decode-servers-urls", pd.address)


def flags(*engines: StubEngine) -> list[str]:
    """Flags for engines of any roles."""
    given = {Role.ENCODE: "--encode-servers-urls", Role.PREFILL: "--prefill-servers-urls"}
    urls: dict[str, list[str]] = {}
    for engine in engines:
        urls.setdefault(given.get(engine.role, "--decode-servers-urls"), []).append(engine.address)
    return [part for flag, addresses in urls.items() for part in (flag, ",".join(addresses))]


async def stop(proxy: Running) -> str:
    """End the process at once, in order; returns what it logged."""
    for number in (signal.SIGTERM, signal.SIGINT):
        proxy.process.send_signal(number)
    assert proxy.process.stderr is not None
    log = (await proxy.process.stderr.read()).decode()
    assert await proxy.process.wait() == 0
    return log
