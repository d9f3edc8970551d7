from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from epd.proxy import pool
from epd.proxy.pool import HttpTransport

ON_BOTH_LOOPS = frozenset(
    {"test_pool.py", "test_pool_answers.py", "test_pool_connecting.py", "test_pool_stale.py", "test_pool_storm.py"}
)
"""Modules whose subject is what a loop's transports do; the others see none of them."""


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    return loops | {"uvloop": uvloop.new_event_loop} if item.path.name in ON_BOTH_LOOPS else loops


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection of a pool grows old or is found stale too late because the machine is slow."""
    monkeypatch.setattr(pool, "KEEPALIVE_SECONDS", 600)
    monkeypatch.setattr(pool, "STALE_SECONDS", 600)


@pytest.fixture
async def transport(patience: None) -> AsyncIterator[HttpTransport]:
    async with HttpTransport() as transport:
        yield transport
