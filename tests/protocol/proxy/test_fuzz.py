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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest
import uvloop

from epd.api.names import Role
from protocol.proxy import proxies
from protocol.proxy.replies import replies_of
from protocol.proxy.strictengine import StrictEngine
from protocol.proxy.stubs import until
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
    async with proxies.proxy(engine, roles=frozenset({Role.PREFILL_DECODE})) as proxy:  # type: ignore[arg-type] # a stub
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
