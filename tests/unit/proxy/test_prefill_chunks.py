"""Chunks of a stream that pass as they came, and those that may not."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from epd.proxy.pool import HttpTransport
from epd.proxy.prefill import PrefillSide
from epd.proxy.routing import InFlight
from unit.proxy.engines import CONTENT, ROLE_CHUNK, arrival
from unit.proxy.prefills import D0, DONE, LAST, STRIPPED, open_stream, relayed
from unit.proxy.rawengine import CHUNKED, Peer, Recorder, raw_engine
from unit.proxy.wires import Line


async def test_a_stream_over_a_connection_loses_nothing_before_and_after_its_relay() -> None:
    events = [ROLE_CHUNK, *([CONTENT] * 300), DONE]

    async def behave(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        await peer.send(*(b"%x\r\n%b\r\n" % (len(event), event) for event in events), b"0\r\n\r\n")
        await peer.closed()

    async with HttpTransport() as transport, raw_engine(behave) as engine:
        load = InFlight()
        side = PrefillSide(transport=transport, load=load, idle_seconds=60)
        outcome = await side.attempt(arrival(), replace(D0, address=engine.address))
        for _ in range(100):
            await asyncio.sleep(0)
        assert await relayed(outcome) == (b"".join(events), None)


class ChunkRecorder(Recorder):
    """A sink that takes chunks as they came, and keeps those."""

    def __init__(self) -> None:
        super().__init__()
        self.chunks: list[bytes] = []

    def write_chunk(self, framed: bytes, start: int) -> None:
        content = framed[start:-2]
        assert framed == b"%x\r\n%b\r\n" % (len(content), content)
        self.chunks.append(content)
        self.write(content)


def relayed_over_a_wire(pieces: list[bytes]) -> ChunkRecorder:
    line = Line()
    answer = line.ask()
    line.hear(CHUNKED)
    stream, sink = open_stream(answer), ChunkRecorder()
    stream.relay(sink)
    line.hear(*pieces)
    stream.close()
    return sink


def chunks(*contents: bytes) -> list[bytes]:
    return [b"%x\r\n%b\r\n" % (len(content), content) for content in contents]


async def test_an_event_that_comes_as_a_chunk_passes_as_it_is() -> None:
    sink = relayed_over_a_wire([*chunks(ROLE_CHUNK, CONTENT, DONE), b"0\r\n\r\n"])
    # the first is behind the head, of which the parser can't say that nothing follows
    assert (bytes(sink.body), sink.chunks) == (ROLE_CHUNK + CONTENT + DONE, [CONTENT, DONE])
    assert sink.over.result() is None


async def test_a_chunk_passes_only_if_nothing_is_to_be_done() -> None:
    first, second = CONTENT[:9], CONTENT[9:]
    sink = relayed_over_a_wire([*chunks(CONTENT, first, second, LAST, CONTENT), b"0\r\n\r\n"])
    assert (bytes(sink.body), sink.chunks) == (CONTENT + CONTENT + STRIPPED + CONTENT, [CONTENT])


@given(
    st.lists(st.sampled_from([CONTENT, ROLE_CHUNK, LAST, CONTENT[:9], CONTENT[9:], CONTENT * 3, b"\n"]), max_size=12),
    st.lists(st.integers(1, 400), max_size=12),
)
async def test_however_a_stream_is_cut_its_client_gets_the_same(contents: list[bytes], cuts: list[int]) -> None:
    sent = b"".join([*chunks(*contents), b"0\r\n\r\n"])
    at, pieces = 0, list[bytes]()
    for cut in cuts:
        pieces.append(sent[at : at + cut])
        at += cut
    pieces = [piece for piece in [*pieces, sent[at:]] if piece]
    by_chunk = [*chunks(*contents), b"0\r\n\r\n"]
    whole = relayed_over_a_wire([sent])
    for sink in (relayed_over_a_wire(pieces), relayed_over_a_wire(by_chunk)):
        assert (bytes(sink.body), sink.over.result()) == (bytes(whole.body), None)
