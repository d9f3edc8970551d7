"""Faults of all kinds at once, on both event loops."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from epd.proxy.answers import EngineAnswer
from epd.proxy.pool import HttpTransport
from epd.proxy.transport import Cause, TransportError
from unit.proxy.rawengine import CHUNKED, Peer, Recorder, raw_engine, until

pytestmark = pytest.mark.usefixtures("patience")


def manners(path: bytes, dice: random.Random) -> tuple[list[bytes], bool]:
    """How an engine answers with the path, in one of several ways, some of them wrong; and whether it goes on."""
    ok = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(path), path)
    chunks = [CHUNKED, *(b"1\r\n%c\r\n" % sign for sign in path)]
    return dice.choice(
        [
            ([ok[: dice.randrange(1, len(ok))]], False),
            ([b"HTTP/1.1 200 OK\r\n\r\n", path], False),
            ([ok + ok], False),
            ([b"\0" + ok], True),
            ([*chunks, b"0\r\n\r\n"], True),
            (chunks, False),
            # what is then kept is closed before long
            ([ok], False),
            *[([ok], True)] * 3,
        ]
    )


async def misbehave(peer: Peer, dice: random.Random) -> None:
    while True:
        head = await peer.head()
        path = head.split(b" ")[1]
        kind = dice.randrange(12)
        if kind == 0:
            peer.reset()
            return
        if kind == 1:
            # before the body was read
            await peer.send(b"HTTP/1.1 413 No\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(path), path))
            return
        size = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        await peer.reader.readexactly(size)
        pieces, goes_on = manners(path, dice)
        await peer.send(*pieces)
        if not goes_on:
            return


async def sluggishly(answer: EngineAnswer) -> bytes:
    """Relay, with a pause after each write."""

    class Sluggish(Recorder):
        def write(self, data: bytes) -> None:
            super().write(data)
            answer.pause()
            asyncio.get_running_loop().call_soon(answer.resume)

    sink = Sluggish()
    answer.relay(sink)
    if broke := await sink.over:
        raise broke
    return bytes(sink.body)


@pytest.mark.parametrize("seed", range(3))
async def test_in_a_storm_of_faults_no_call_hangs_and_none_gets_the_answer_of_another(seed: int) -> None:
    dice = random.Random(seed)
    counts = Counter[str]()

    async def ask(path: str) -> None:
        body = bytes(dice.choice([0, 10, 1000, 300_000]))
        try:
            answer = await transport.send(engine.call(path, body=body))
            try:
                text = await answer.read() if dice.random() < 0.5 else await sluggishly(answer)
            finally:
                answer.close()
            assert text.decode() == path
            counts["answered"] += 1
        except TransportError as error:
            counts[error.cause] += 1

    async def client(name: int) -> None:
        for number in range(60):
            task = asyncio.create_task(ask(f"/{seed}/{name}/{number}"))
            if dice.random() < 0.1:
                for _ in range(dice.randrange(8)):
                    await asyncio.sleep(0)
                task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()

    async with HttpTransport() as transport, raw_engine(lambda peer: misbehave(peer, dice)) as engine:
        await asyncio.wait_for(asyncio.gather(*(client(name) for name in range(8))), 60)
        assert set(counts) == {"answered", Cause.DISCONNECTED, Cause.PROTOCOL}
        # half of what the engine does is right, and of the cancelled ones some had ended
        assert counts["answered"] > 150
        # the others are all kept, or being closed
        await until(
            lambda: len(transport._connections) == sum(len(known.kept) for known in transport._engines.values())
        )
        transport.close()
        await until(lambda: (transport._connections, transport._engines) == (set(), {}))
