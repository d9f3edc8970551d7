"""An engine that reads as strictly as can be what the proxy writes."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from epd.api.names import Role
from epd.proxy.pods import Member
from protocol.proxy.stubs import DONE, ROLE_CHUNK, content_chunk


@dataclass
class StrictEngine:
    """Reads as strictly as can be what the proxy writes, and keeps it. Answers at random, now and then slowly."""

    dice: random.Random
    name: str = "pd0"
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[bytes] = field(default_factory=list)
    address: str = ""

    def member(self) -> Member:
        return Member(name=self.name, role=Role.PREFILL_DECODE, pairing="p1", address=self.address, ready=True)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[StrictEngine]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20)
        self.address = "http://{}:{}".format(*server.sockets[0].getsockname())
        yield self
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # uvloop writes nothing to what is closed (RuntimeError), asyncio just loses it
        with suppress(asyncio.IncompleteReadError, ConnectionError, RuntimeError, asyncio.CancelledError):
            while True:
                await self._answer(await self._request(reader), writer)
        writer.close()

    async def _request(self, reader: asyncio.StreamReader) -> dict[str, Any]:
        head = await reader.readuntil(b"\r\n\r\n")
        line, *lines = head[:-4].split(b"\r\n")
        method, path, version = line.split(b" ")
        fields = [each.split(b": ", 1) for each in lines]
        lengths = [value for name, value in fields if name == b"content-length"]
        if method == b"POST" and (version, len(lengths), len(dict(fields))) != (b"HTTP/1.1", 1, len(fields)):
            self.wrong.append(head)
        body = await reader.readexactly(int(lengths[0]) if lengths else 0)
        if method == b"POST":
            document = json.loads(body)
            self.seen[path.decode(), json.dumps(document, sort_keys=True)] += 1
            return document  # type: ignore[no-any-return] # the proxy has looked
        return {}

    async def _answer(self, document: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        await self._pause()
        if not document.get("stream"):
            body = b'{"choices": []}'
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            writer.write(head % len(body) + body)
            await writer.drain()
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for event in (ROLE_CHUNK, *[content_chunk("x" * 100)] * self.dice.randrange(5), DONE):
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await writer.drain()
            await self._pause()
        writer.write(b"0\r\n\r\n")

    async def _pause(self) -> None:
        if self.dice.random() < 0.3:
            await asyncio.sleep(self.dice.random() * 0.004)
