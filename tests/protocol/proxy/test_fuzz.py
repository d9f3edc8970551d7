"""Clients that spoil, cut up, interleave and break off what they send, over real sockets, for a while.

Whatever they do, the engine sees only requests that the second reader finds too, each once; everybody is answered in
order or closed; and in the end nothing is left. `EPD_FUZZ_SECONDS` makes it longer, a failure names the seed of its
round.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvloop

from epd.api.names import Role
from epd.proxy.pods import Member
from protocol.proxy import stubs
from protocol.proxy.stubs import DONE, ROLE_CHUNK, content_chunk, until
from unit.proxy.malformed import MALFORMED
from unit.proxy.secondreader import NASTY, reference

SECONDS = float(os.environ.get("EPD_FUZZ_SECONDS", "2"))
"""For each loop and seed."""
CLIENTS = 24
"""Of a round, at the same time."""
PATIENCE = 20
"""Seconds until a client that waits counts as hanging."""
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
CHAT = b"/v1/chat/completions"
PATHS = (*[CHAT] * 8, b"/v1/completions", b"/v1/models", b"/health", b"/metrics", b"/v1/chat/completions/")

ALL = [data for data, _ in MALFORMED.values()]
FRAMING = [
    data for data in ALL if (b"Content-Length" in data and b"Transfer-Encoding" in data) or data.count(b"Length") > 1
]
"""Where two readers would most likely disagree on where a request ends."""


# what clients send


def request(dice: random.Random, number: int) -> bytes:
    """A request that is valid, or nearly."""
    document = {
        "messages": [{"role": "user", "content": f"number {number}"}],
        "prompt": "p",
        "stream": dice.random() < 0.4,
    }
    body = json.dumps(document).encode() + b" " * dice.choice([*[0] * 6, 3, 70_000])
    path, method = dice.choice(PATHS), dice.choice([*[b"POST"] * 8, b"GET", b"HEAD", b"DELETE"])
    fields = [
        b"Host: p",
        *dice.sample([b"X: y", b"Connection: keep-alive", b"Authorization: Bearer a", b"Accept: */*"], 2),
    ]
    if dice.random() < 0.05:
        fields.append(dice.choice([b"Connection: close", b"Expect: 100-continue", b"Content-Encoding: gzip"]))
    if method != b"POST":
        return b"%b %b HTTP/1.1\r\n%b\r\n\r\n" % (method, path, b"\r\n".join(fields))
    if dice.random() < 0.5:
        fields.append(b"Content-Length: %d" % len(body))
    else:
        fields.append(b"Transfer-Encoding: chunked")
        cuts = sorted(dice.sample(range(1, len(body)), dice.randrange(3)))
        pieces = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
        body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    dice.shuffle(fields)
    return b"%b %b HTTP/1.1\r\n%b\r\n\r\n%b" % (method, path, b"\r\n".join(fields), body)


def spoiled(dice: random.Random, data: bytes) -> bytes:
    for _ in range(dice.choice([0, 0, 1, 2])):
        at, cut = dice.randrange(len(data) + 1), dice.choice([0, 0, 1, 2, 20])
        data = data[:at] + dice.choice([b"", *NASTY]) + data[at + cut :]
    return data


def pieces_of(dice: random.Random, data: bytes) -> list[bytes]:
    longest = dice.choice([1, 7, 60, 1500, 100_000]) if len(data) < 5000 else dice.choice([1500, 100_000])
    pieces = []
    while data:
        size = dice.randint(1, longest)
        pieces.append(data[:size])
        data = data[size:]
    return pieces


# what comes back


@dataclass
class Reply:
    status: int
    close: bool
    whole: bool


def replies_of(data: bytes, methods: list[bytes]) -> list[Reply]:
    """All replies in `data`, of which the last may not be whole. Fails where there is anything else."""
    found: list[Reply] = []
    while data:
        head, mark, rest = data.partition(b"\r\n\r\n")
        if not mark:
            assert head.startswith(b"HTTP/1.1 "[: len(head)])
            return [*found, Reply(0, close=False, whole=False)]
        line, *lines = head.split(b"\r\n")
        version, status, _ = line.split(b" ", 2)
        assert version == b"HTTP/1.1"
        if status == b"100":
            data = rest
            continue
        fields = dict(each.lower().split(b": ", 1) for each in lines)
        reply = Reply(int(status), close=fields.get(b"connection") == b"close", whole=True)
        bodiless = len(found) < len(methods) and methods[len(found)] == b"HEAD"
        if not bodiless and b"content-length" in fields:
            length = int(fields[b"content-length"])
            reply.whole, rest = len(rest) >= length, rest[length:]
        elif not bodiless:
            assert fields[b"transfer-encoding"] == b"chunked"
            reply.whole, rest = chunks(rest)
        found.append(reply)
        data = rest
    return found


def chunks(data: bytes) -> tuple[bool, bytes]:
    """Whether a chunked body is whole, and what is behind it."""
    while True:
        line, mark, rest = data.partition(b"\r\n")
        if not mark:
            return False, b""
        size = int(line, 16)
        if len(rest) < size + 2:
            return False, b""
        assert rest[size : size + 2] == b"\r\n"
        data = rest[size + 2 :]
        if not size:
            return True, data


# the engine


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


# clients


@dataclass
class Client:
    """One connection: what it sends, and how it ends. Those that are not rude read all that comes."""

    dice: random.Random
    number: int
    data: bytes = b""
    end: str = ""

    def __post_init__(self) -> None:
        dice = self.dice
        requests = [request(dice, 100 * self.number + each) for each in range(dice.randint(1, 4))]
        if dice.random() < 0.2:
            requests.insert(dice.randrange(len(requests) + 1), dice.choice(dice.choice([ALL, FRAMING])))
        self.data = spoiled(dice, b"".join(requests))
        self.end = dice.choice(["half-close", "half-close", "half-close", "close", "reset", "half-close early"])

    async def run(self, address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        polite = self.end.startswith("half-close")
        pieces = pieces_of(self.dice, self.data)
        if self.end != "half-close":
            pieces = pieces[: self.dice.randrange(len(pieces) + 1)]
        received = asyncio.create_task(reader.read()) if polite else None
        with suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                if self.dice.random() < 0.1:
                    await writer.drain()
                await asyncio.sleep(0.001 if self.dice.random() < 0.02 else 0)
            if polite:
                await writer.drain()
                writer.write_eof()
        if received is not None:
            with suppress(ConnectionError):
                self.check(b"".join(pieces), await asyncio.wait_for(received, PATIENCE))
        elif self.end == "reset":
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        writer.close()

    def check(self, sent: bytes, received: bytes) -> None:
        expected, state = reference(sent)
        replies = replies_of(received, [method for method, _, _ in expected])
        assert all(reply.whole for reply in replies)
        assert len(replies) <= len(expected) + (state in ("refused", "incomplete"))
        if len(replies) < len(expected) or state == "refused":
            # what is not answered is behind a reply that said so
            assert replies
            assert replies[-1].close
        for (method, path, _), reply in zip(expected, replies, strict=False):
            assert reply.status in ((200, 400, 415, 417) if (method, path) == (b"POST", CHAT) else range(200, 600))


def allowed(clients: list[Client]) -> Counter[tuple[str, str]]:
    """What the engine may see, by the second reader."""
    counted: Counter[tuple[str, str]] = Counter()
    for client in clients:
        for _, path, body in reference(client.data)[0]:
            with suppress(ValueError):
                counted[path.partition(b"?")[0].decode(), json.dumps(json.loads(body), sort_keys=True)] += 1
    return counted


async def fuzz(seed: int) -> int:
    """Rounds until the time is over; how many requests an engine saw."""
    engine = StrictEngine(random.Random(seed))
    until_when, number, clients = time.monotonic() + SECONDS, 0, 0
    async with stubs.proxy(engine, roles=frozenset({Role.PREFILL_DECODE})) as proxy:  # type: ignore[arg-type] # as a stub
        host, _, port = proxy.listener.addresses[0].rpartition(":")
        while not number or time.monotonic() < until_when:
            round_seed, number = f"{seed}:{number}", number + 1
            crowd = [Client(random.Random(f"{round_seed}:{each}"), clients + each) for each in range(CLIENTS)]
            clients += CLIENTS
            before = Counter(engine.seen)
            try:
                await asyncio.gather(*(client.run((host, int(port))) for client in crowd))
                await until(lambda: proxy.listener.connections == 0)
                assert engine.wrong == []
                assert engine.seen - before - allowed(crowd) == Counter()
                assert (proxy.data_port.in_flight, proxy.load.counts()) == (0, {})
                kept = sum(len(each.kept) for each in proxy.transport._engines.values())
                assert kept == len([each for each in proxy.transport._connections if not each.closed])
            except BaseException as error:
                error.add_note(f"seed {round_seed}")
                raise
    return engine.seen.total()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("loop", LOOPS)
def test_engines_see_what_a_second_reader_reads(loop: str, seed: int) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        assert runner.run(fuzz(seed)) > 0
