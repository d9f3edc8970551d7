"""An engine that does as it should half of the time."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from epd.api.names import Role
from epd.proxy.pods import Member
from protocol.proxy.stubs import DONE, IN_STREAM_ERROR, ROLE_CHUNK, content_chunk, event
from unit.proxy.rawengine import Peer, raw_engine

SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


def whole(document: object, status: int = 200, kind: bytes = b"application/json") -> bytes:
    body = json.dumps(document).encode()
    return b"HTTP/1.1 %d X\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (status, kind, len(body), body)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@dataclass
class Unruly:
    """An engine that does as it should half of the time."""

    name: str
    role: Role
    dice: random.Random
    address: str = ""

    def member(self) -> Member:
        return Member(
            name=self.name,
            role=self.role,
            pairing="p",
            address=self.address,
            ready=True,
            push_address="tcp://127.0.0.1:1" if self.role is Role.PREFILL_DECODE else "",
        )

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Unruly]:
        async with raw_engine(self.behave) as engine:
            self.address = engine.address
            yield self

    async def behave(self, peer: Peer) -> None:
        while True:
            received = await peer.request()
            await rounds(self.dice.choice([0, 0, 1, 5, 20]))
            right = self.right(json.loads(received.body or b"{}"))
            fault = self.dice.randrange(32)
            if fault == 0:
                return peer.reset()
            if fault == 1:
                return await peer.closed()
            if fault == 2:
                return await peer.send(*right[: self.dice.randrange(len(right))], right[-1][:-3])
            if fault == 3:
                right = [b"HTTP/1.1 200 OK\r\n\r\n\0"]
            elif fault < 8:
                kind = self.dice.choice([b"application/json", b"text/event-stream"])
                right = [whole({"error": {"message": "no"}}, self.dice.choice([400, 404, 422, 500, 503]), kind)]
            elif fault == 8:
                right = [SSE + b"transfer-encoding: chunked\r\n\r\n", chunk(event(IN_STREAM_ERROR)), b"0\r\n\r\n"]
            elif fault == 9:
                return await peer.send(*right)
            await self.send(peer, right)

    async def send(self, peer: Peer, pieces: list[bytes]) -> None:
        """Send in one write, as they are, or in many small ones."""
        manner = self.dice.randrange(3)
        if manner:
            pieces = [b"".join(pieces)]
        if manner == 2:
            step = self.dice.choice([1, 7, 100])
            pieces = [pieces[0][at : at + step] for at in range(0, len(pieces[0]), step)]
        await peer.send(*pieces)

    def right(self, asked: dict[str, Any]) -> list[bytes]:
        if "messages" not in asked:
            return [whole({"data": [{"id": "tiny"}]})]
        if self.role is Role.ENCODE:
            return [whole({"choices": [], "ec_transfer_params": encoded(asked)})]
        said = json.dumps(asked["messages"])
        if not asked.get("stream"):
            return [whole({"choices": [{"message": {"content": said}}], "kv_transfer_params": {"x": 1}})]
        many = self.dice.choice([1, 3, 300])
        events = [ROLE_CHUNK, content_chunk(said), *[content_chunk("x" * 500)] * many, DONE, b""]
        return [SSE + b"transfer-encoding: chunked\r\n\r\n", *map(chunk, events)]


def encoded(asked: dict[str, Any]) -> dict[str, Any]:
    """What an encoder reports; of what it pushes the ids too."""
    parts = [part for message in asked["messages"] for part in message["content"]]
    transfers = [each["transfer_id"] for each in asked.get("ec_transfer_params", {}).get("ec_items", ())]
    return {
        part["uuid"]: {"item_indices": [at], "metadata": {"image_grid_thw": [1, 8, 8]}}
        | ({"transfer_id": transfers[at]} if transfers else {})
        for at, part in enumerate(parts)
    }


async def rounds(number: int) -> None:
    """Wait for so many rounds of the event loop."""
    for _ in range(number):
        await asyncio.sleep(0)
