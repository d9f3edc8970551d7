from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from epd.api.collection import CollectorReport
from epd.controller import reports
from epd.controller.reports import Answer, Reports
from unit.controller import objects

REPORT = CollectorReport(claim="ec", passes=3)


class Collector:
    """Answers /status, and can be made to do it badly."""

    def __init__(self) -> None:
        self.answer: Callable[[httpx.Request], httpx.Response] = lambda _: httpx.Response(200, content=body(REPORT))
        self.asked: list[str] = []
        self.now = 0.0
        client = httpx.AsyncClient(transport=httpx.MockTransport(self._serve))
        self.reports = Reports(client, clock=lambda: self.now)

    def _serve(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(str(request.url))
        return self.answer(request)

    def say(self, **changes: Any) -> None:
        self.answer = lambda _: httpx.Response(200, content=body(REPORT.model_copy(update=changes)))

    def fail(self, error: Exception) -> None:
        def answer(_: httpx.Request) -> httpx.Response:
            raise error

        self.answer = answer


def body(report: CollectorReport) -> str:
    return report.model_dump_json(by_alias=True)


class Packed(httpx.AsyncByteStream):
    """Small on the wire, and of any size when it is unpacked."""

    def __init__(self, text: str) -> None:
        self._packed = gzip.compress(text.encode())

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._packed


class Trickle(httpx.AsyncByteStream):
    """Never silent for as long as a read may take, and never at its end."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(0.001)
            yield b" "


def pod(name: str = "c-1", address: str = "10.0.0.1") -> dict[str, Any]:
    return objects.pod(name, podIP=address)


@pytest.mark.parametrize(
    ("address", "url"), [("10.0.0.1", "http://10.0.0.1:8080/status"), ("fd00::1", "http://[fd00::1]:8080/status")]
)
async def test_the_pods_own_address_is_asked(address: str, url: str) -> None:
    collector = Collector()
    assert await collector.reports.read("ai/a", pod(address=address)) == Answer(REPORT)
    assert collector.asked == [url]


async def test_a_pod_without_address_is_not_asked() -> None:
    collector = Collector()
    assert await collector.reports.read("ai/a", objects.pod()) == Answer(None, "its pod has no address yet")
    assert collector.asked == []


async def test_one_answer_serves_all_for_a_minute() -> None:
    collector = Collector()
    for key, now in (("ai/a", 0.0), ("ai/b", 59.0), ("ai/a", 60.0)):
        collector.now = now
        await collector.reports.read(key, pod())
    assert len(collector.asked) == 2
    collector.now = 62.0
    await collector.reports.read("ai/a", pod(), max_age=2.0)
    assert len(collector.asked) == 3


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (httpx.ReadTimeout("slow"), "its /status does not answer within 2 s"),
        (httpx.ConnectError("refused"), "its /status cannot be read (ConnectError)"),
        (httpx.Response(503, text="no"), "its /status answers 503"),
        (httpx.Response(302, headers={"Location": "http://metadata/"}), "its /status answers 302"),
        (httpx.Response(200, text="<html>"), "its /status is no report of a collector"),
        (httpx.Response(200, text="{}"), "its /status is no report of a collector"),
        (httpx.Response(200, content=b" " * (reports.MAX_BYTES + 1)), "its /status is too long"),
        (httpx.Response(200, text='{"claim": "ec", "entries": -1}'), "its /status is no report of a collector"),
        (
            httpx.Response(200, text=f'{{"claim": "ec", "entries": {10**40}}}'),
            "its /status is no report of a collector",
        ),
        (
            httpx.Response(200, stream=Packed(body(REPORT)), headers={"Content-Encoding": "gzip"}),
            "its /status is no report of a collector",
        ),
    ],
    ids=["timeout", "refused", "503", "redirect", "no JSON", "no report", "endless", "negative", "huge", "packed"],
)
async def test_whatever_else_comes_is_words(answer: Any, words: str) -> None:
    collector = Collector()
    if isinstance(answer, Exception):
        collector.fail(answer)
    else:
        collector.answer = lambda _: answer
    assert await collector.reports.read("ai/a", pod()) == Answer(None, words)


async def test_a_trickle_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "TIMEOUT_SECONDS", 0.05)
    collector = Collector()
    collector.answer = lambda _: httpx.Response(200, stream=Trickle())
    answer = await asyncio.wait_for(collector.reports.read("ai/a", pod()), 10)
    assert answer.words.startswith("its /status does not answer")


async def test_a_pod_that_got_another_address_is_asked_there() -> None:
    collector = Collector()
    await collector.reports.read("ai/a", pod())
    collector.now = 60.0
    await collector.reports.read("ai/a", pod(address="10.0.0.9"))
    assert collector.asked == ["http://10.0.0.1:8080/status", "http://10.0.0.9:8080/status"]


async def test_the_last_good_answer_stands_in_for_three_minutes() -> None:
    collector = Collector()
    await collector.reports.read("ai/a", pod())
    collector.fail(httpx.ConnectError("refused"))
    for now, known in ((60.0, True), (179.0, True), (240.0, False)):
        collector.now = now
        answer = await collector.reports.read("ai/a", pod())
        assert (answer.report is not None) is known, now
    collector.say()
    collector.now = 254.0
    assert (await collector.reports.read("ai/a", pod())).report is None  # it failed just now
    collector.now = 255.0
    assert (await collector.reports.read("ai/a", pod())).report is not None


async def test_a_refresh_names_those_whose_collector_says_something_else() -> None:
    collector = Collector()
    for key in ("ai/a", "ai/b"):
        await collector.reports.read(key, pod())
    collector.say(entries=7)
    assert await collector.reports.refresh() == frozenset()  # it is fresh
    collector.now = 60.0
    assert await collector.reports.refresh() == {"ai/a", "ai/b"}
    collector.now = 120.0
    assert await collector.reports.refresh() == frozenset()
    assert len(collector.asked) == 3


async def test_who_is_gone_or_reads_another_pod_is_not_asked_for() -> None:
    collector = Collector()
    await collector.reports.read("ai/a", pod("old"))
    await collector.reports.read("ai/a", pod("new", "10.0.0.2"))
    collector.asked.clear()
    collector.now = 60.0
    await collector.reports.refresh()
    assert collector.asked == ["http://10.0.0.2:8080/status"]
    collector.reports.forget("ai/a")
    collector.now = 120.0
    await collector.reports.refresh()
    assert len(collector.asked) == 1


async def test_the_client_goes_by_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    client = reports.client()
    assert not client.trust_env
    assert not client.follow_redirects
    await client.aclose()
