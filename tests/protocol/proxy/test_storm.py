"""Engines that fail in every way, clients that leave at any moment: afterwards nothing is left of any request."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import random
import socket
import struct
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from epd.api.names import Role
from epd.proxy.connectors import Connector
from epd.proxy.course import Course
from epd.proxy.settings import Limits
from protocol.proxy.proxies import Proxy, proxy
from protocol.proxy.stubs import CHAT, DONE, until
from protocol.proxy.unruly import Unruly, chunk, rounds

CLIENTS = 12
REQUESTS = 30
"""Of each client, in each of the tests."""
LIMITS = Limits(
    request_seconds=0.5,
    encode_seconds=0.1,
    idle_seconds=0.2,
    max_in_flight=CLIENTS - 1,
    max_in_flight_per_engine=3,
    queue=4,
    queue_seconds=0.1,
    max_fallback_encodes=2,
)
"""All so small that some request meets each of them."""
PICTURES = ("AAAA", "BBBB", "CCCC")


def request(mark: str, dice: random.Random) -> bytes:
    """One of several kinds; what asks for text has the mark in it."""
    kind = dice.randrange(12)
    version = dice.choice([b"1.1", b"1.1", b"1.0"])
    fields = b"host: p\r\n" + (b"connection: close\r\n" if version == b"1.1" else b"")
    if kind < 2:
        path = (b"/v1/models", b"/health")[kind]
        return b"GET %b HTTP/%b\r\n%b\r\n" % (path, version, fields)
    content: list[dict[str, Any]] = [{"type": "text", "text": mark}]
    pictures = dice.sample(PICTURES, dice.choice([0, 1, 1, 2]))
    content += [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{one}"}} for one in pictures]
    body = json.dumps(
        {"model": "tiny", "messages": [{"role": "user", "content": content}], "stream": dice.random() < 0.6}
    ).encode()
    if kind == 2:
        body = body[:-1]
    if kind == 3 and version == b"1.1":
        fields += b"transfer-encoding: chunked\r\n"
        body = chunk(body[:50]) + chunk(body[50:]) + b"0\r\n\r\n"
    else:
        fields += b"content-length: %d\r\n" % len(body)
    asks = b"POST %b HTTP/%b\r\n%b\r\n%b" % (CHAT.encode(), version, fields, body)
    if kind == 4 and version == b"1.1":
        # a request before it, over the same connection
        asks = asks.replace(b"connection: close\r\n", b"", 1) + asks
    return asks


@dataclass
class Client:
    """Asks one request after the other, each over a connection of its own. `seen` counts how they went."""

    name: int
    proxy: Proxy
    dice: random.Random
    seen: Counter[str]

    async def ask(self, number: int) -> None:
        mark = f"<{self.name}.{number}>"
        host, _, port = self.proxy.listener.addresses[0].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 12)
        if self.dice.random() < 0.3:
            # it ends with a reset, whatever was read
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        asks = request(mark, self.dice)
        try:
            cut = self.dice.choice([len(asks), self.dice.randrange(len(asks))])
            writer.write(asks[:cut])
            manner = self.dice.randrange(8)
            if manner < 3:
                await rounds(self.dice.choice([0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89]))
                self.seen["left"] += 1
                return
            await rounds(1)
            writer.write(asks[cut:])
            if manner == 3:
                # a connection that the proxy has broken off can't be ended
                with contextlib.suppress(OSError):
                    writer.write_eof()
            self.note(await asyncio.wait_for(self.read(reader, slowly=manner == 4), 20), mark, asks)
        except ConnectionError:
            # the proxy broke off a stream that an engine had broken off
            self.seen["reset"] += 1
        finally:
            writer.transport.abort()

    async def read(self, reader: asyncio.StreamReader, *, slowly: bool) -> bytes:
        answer = b""
        while data := await reader.read(1 << 12):
            answer += data
            await rounds(20 * slowly)
        return answer

    def note(self, answer: bytes, mark: str, asks: bytes) -> None:
        assert answer.startswith(b"HTTP/1.1 "), answer
        status = answer[9:12].decode()
        self.seen[status] += 1
        if status == "200" and mark.encode() in asks:
            whole = b"content-length" in answer or answer.endswith((DONE, b"0\r\n\r\n"))
            assert not whole or mark.encode() in answer, "it is another request's answer"


async def nothing_is_left(p: Proxy) -> None:
    """Nothing of any request is counted, waits or is kept."""
    port, exchange, transport = p.data_port, p.data_port.exchange, p.transport
    encoding = exchange.adapters._encoding

    def left() -> dict[str, object]:
        kept = sum(len(engine.kept) for engine in transport._engines.values())
        return {
            "connections of clients": p.listener.connections,
            "requests in flight": port.in_flight,
            "load": p.load.counts(),
            "bodies": port.bodies.taken,
            "queue": (exchange.admission.waiting, exchange.admission._queues),
            "fallbacks": exchange._demand.fallbacks,
            "demand": p.metrics._waiting_items,
            "flights": encoding._flights,
            "primers": encoding._primers._expiry._due,
            "connections that are not kept": len(transport._connections) - kept,
        }

    nothing: dict[str, object] = dict.fromkeys(left(), 0)
    nothing |= {"load": {}, "queue": (0, {}), "flights": {}, "primers": {}}
    try:
        await until(lambda: left() == nothing)
    except TimeoutError:
        assert left() == nothing
    assert port.idle.is_set()
    transport.close()
    await until(lambda: not transport._connections)
    assert transport._engines == {}


def courses() -> int:
    gc.collect()
    return sum(type(one) is Course for one in gc.get_objects())


MEDIA = frozenset({Role.ENCODE, Role.PREFILL_DECODE})
SPLIT = frozenset({Role.ENCODE, Role.PREFILL, Role.DECODE})
TOPOLOGIES: dict[str, tuple[frozenset[Role], dict[str, Any]]] = {
    "E-PD": (MEDIA, {}),
    "E-PD with hints, without media": (
        MEDIA,
        {"rewrite": True, "connector": Connector.MANAGED, "hint_seconds": 0.05},
    ),
    "E-PD by pushes": (MEDIA, {"connector": Connector.MOONCAKE}),
    "E-P-D": (SPLIT, {}),
}


@pytest.mark.parametrize(("roles", "fields"), TOPOLOGIES.values(), ids=TOPOLOGIES.keys())
async def test_nothing_is_left_after_a_storm(
    roles: frozenset[Role], fields: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    dice = random.Random(7)
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    seen: Counter[str] = Counter()
    engines = [Unruly(f"{role}-{number}", role, dice) for role in sorted(roles) for number in range(2)]
    running_before = courses()
    async with proxy(*engines, roles=roles, limits=LIMITS, **fields) as p:  # type: ignore[arg-type] # serves as stubs do
        tasks = len(asyncio.all_tasks())

        async def client(name: int) -> None:
            for number in range(REQUESTS):
                await Client(name, p, dice, seen).ask(number)

        await asyncio.wait_for(asyncio.gather(*map(client, range(CLIENTS))), 100)
        await nothing_is_left(p)
        await until(lambda: len(asyncio.all_tasks()) <= tasks)
    assert courses() == running_before
    assert complaints == []
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    # so much went as it should that the rest was worth something
    assert seen["200"] > 40, seen
    assert seen["left"] > 60, seen
