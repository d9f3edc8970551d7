from __future__ import annotations

import asyncio

import pytest

from epd.proxy.fetching import Fetched, fetch
from epd.proxy.transport import Call, Cause, TransportError
from unit.proxy.engines import JSON, Scripted, bench, broken, member, settle

CALL = Call(address="http://d0", path="/v1/models", method="GET")


async def test_a_whole_answer() -> None:
    b = bench(member("d0"), scripts={"d0": [Scripted(status=404, headers=JSON, chunks=[b"no", b"ne"])]})
    assert await fetch(b.engines, CALL) == Fetched(404, JSON, b"none")
    assert [answer.closed for answer in b.engines.answers] == [1]


async def test_an_answer_that_breaks_off_is_closed() -> None:
    b = bench(member("d0"), scripts={"d0": [Scripted(chunks=[b"no", broken(Cause.DISCONNECTED)])]})
    with pytest.raises(TransportError):
        await fetch(b.engines, CALL)
    assert [answer.closed for answer in b.engines.answers] == [1]


async def test_an_answer_that_nobody_waits_for_is_closed() -> None:
    b = bench(member("d0"), scripts={"d0": [Scripted(chunks=[b"no", None])]})
    task = asyncio.create_task(fetch(b.engines, CALL))
    await settle()
    task.cancel()
    await settle()
    assert [answer.closed for answer in b.engines.answers] == [1]
