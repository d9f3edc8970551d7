"""Clocks that jump and processes that pause, as of a virtual machine that is suspended: no request fails of it."""

from __future__ import annotations

import ast
import asyncio
import itertools
import signal
import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

import epd.proxy
from epd.proxy.settings import Limits
from protocol.proxy import stubs
from protocol.proxy.processes import running, servers
from protocol.proxy.proxies import proxy
from protocol.proxy.stubs import StubEngine, decoder, encoder, image

WALL_CLOCK = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today"}
TELLING_THE_TIME = {"access_log", "admin", "framing", "record"}
"""Modules that say what time it is (logs, the topology, the Date of answers, spans), and decide nothing by it."""
SILENCE_SECONDS = 2
"""How long an engine may be silent: longer than a slow machine takes from a stream's begin to the signal."""
PAUSE_SECONDS = SILENCE_SECONDS + 0.5


def test_nothing_but_dates_and_logs_asks_for_the_wall_clock() -> None:
    asking = set()
    for path in Path(epd.proxy.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in WALL_CLOCK:
                asking.add(path.stem)
    assert asking <= TELLING_THE_TIME


async def test_a_wall_clock_that_jumps_is_seen_in_dates_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.cycle([0.0, 4e9, 1.8e9, 1.0])
    monkeypatch.setattr(time, "time", lambda: next(clock))
    e, pd = encoder(), decoder()
    limits = Limits(request_seconds=60, encode_seconds=60, idle_seconds=60, max_in_flight_per_engine=1, queue=9)
    async with proxy(e, pd, limits=limits) as p:
        years = set()
        for stream in (False, True) * 4:
            answers = await asyncio.gather(*(p.chat(image(), stream=stream) for _ in range(3)))
            for answer in answers:
                assert (answer.status, answer.headers["x-epd-encode"]) == (200, "encoded")
                await answer.read()
                years.add(parsedate_to_datetime(answer.headers["date"]).year)
        assert years & {1970}
        assert years & {2096}
        assert p.value("epd_proxy_retries_total", role="encode", cause="timeout") == 0
        assert p.value("epd_proxy_ejected_members", role="prefill-decode") == 0


async def test_a_process_that_pauses_goes_on_where_it_was() -> None:
    """To it the monotonic clock jumps: what came meanwhile counts, and the engine was not silent."""
    release = asyncio.Event()

    async def answers(engine: StubEngine, request: Any, document: dict[str, Any]) -> stubs.web.StreamResponse:
        response = stubs.web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(stubs.ROLE_CHUNK + stubs.content_chunk("re"))
        await release.wait()
        await response.write(stubs.content_chunk("d") + stubs.DONE)
        return response

    e, pd = encoder(), decoder(behave=answers)
    async with e.serve(), pd.serve(), running(*servers(e, pd), "--idle-timeout", f"{SILENCE_SECONDS}s") as started:
        await started.ready(200)
        streaming = await started.chat(stream=True)
        started.process.send_signal(signal.SIGSTOP)
        release.set()
        await asyncio.sleep(PAUSE_SECONDS)
        started.process.send_signal(signal.SIGCONT)
        assert (await streaming.read()).endswith(stubs.content_chunk("d") + stubs.DONE)
        # nobody was put out for it
        assert (await started.chat()).headers["x-epd-encode"] == "encoded"
        topology = await (await started.http.get(f"{started.admin}/topology")).json()
        assert {m["health"] for m in topology["members"]} == {"healthy"}
