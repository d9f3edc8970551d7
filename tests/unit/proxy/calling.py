"""Calls through a pool as tests make them."""

from __future__ import annotations

import asyncio

import pytest

from epd.proxy.pool import HttpTransport
from epd.proxy.transport import Call, Cause, TransportError
from epd.proxy.upstream import EngineConnection
from unit.proxy.rawengine import Recorder


def only(transport: HttpTransport) -> EngineConnection:
    [connection] = transport._connections
    return connection


async def cause(transport: HttpTransport, call: Call, *, relayed: bool = False) -> Cause:
    with pytest.raises(TransportError) as error:
        await asyncio.wait_for(_finish(transport, call, relayed=relayed), 10)
    return error.value.cause


async def _finish(transport: HttpTransport, call: Call, *, relayed: bool) -> None:
    answer = await transport.send(call)
    if not relayed:
        await answer.read()
        return
    sink = Recorder()
    answer.relay(sink)
    broke = await sink.over
    assert broke is not None
    raise broke
