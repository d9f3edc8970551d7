"""What collectors say of themselves: `GET /status` of their pods, remembered for a minute.

A figure that is a minute old is as good as a new one, and many reconciles ask for it. Decides nothing; never raises for
a collector that is silent, slow or confused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import httpx
from pydantic import ValidationError

from epd.api import names
from epd.api.collection import CollectorReport
from epd.controller.kinds import Manifest, uid_of

TIMEOUT_SECONDS: Final = 2.0
"""For a whole answer: a reconcile waits for it, and a collector answers from memory."""

FRESH_SECONDS: Final = 60.0
"""How old an answer may be: status moves once a minute at most by it."""

RETRY_SECONDS: Final = 15.0
"""How soon a collector that did not answer is asked again."""

GRACE_SECONDS: Final = 180.0
"""For how long the last good answer stands in for one that fails: a hiccup shall not move a condition."""

MAX_BYTES: Final = 1 << 20
"""Of an answer. 10,000 versions fit; something else that got the pod's address may send without end."""


@dataclass(frozen=True)
class Answer:
    """A report; or None, and why in words that do not change by themselves."""

    report: CollectorReport | None
    words: str = ""


SILENT: Final = Answer(None)
"""Nobody was asked."""


@dataclass
class _Held:
    url: str
    answer: Answer
    asked: float
    good: float
    readers: set[str] = field(default_factory=set)


class Reports:
    """Asks collectors over `client`. `shown` reduces a report to what a change of is worth a reconcile."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        *,
        shown: Callable[[CollectorReport], CollectorReport] = lambda report: report,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._shown, self._clock = client, shown, clock
        self._held: dict[str, _Held] = {}

    async def read(self, key: str, pod: Manifest, *, max_age: float = FRESH_SECONDS) -> Answer:
        """The answer of a collector's pod, at most `max_age` seconds old; `key` will be told of its changes."""
        address = str((pod.get("status") or {}).get("podIP") or "")
        if not address:
            return Answer(None, "its pod has no address yet")
        uid = uid_of(pod)
        self.forget(key, but=uid)
        held = self._held.get(uid)
        if held is None:
            held = self._held[uid] = _Held("", SILENT, float("-inf"), float("-inf"))
        held.url = _url(address)  # a pod whose sandbox is made anew, as by a reboot, has another one
        held.readers.add(key)
        if self._clock() - held.asked >= (max_age if held.answer.report else min(max_age, RETRY_SECONDS)):
            await self._ask(held)
        return held.answer

    async def refresh(self) -> frozenset[str]:
        """Ask again where the answer is old. Returns the keys whose collector now says something else."""
        changed: set[str] = set()
        for held in list(self._held.values()):
            if self._clock() - held.asked < (FRESH_SECONDS if held.answer.report else RETRY_SECONDS):
                continue
            before = self._told(held.answer)
            await self._ask(held)
            if self._told(held.answer) != before:
                changed |= held.readers
        return frozenset(changed)

    def forget(self, key: str, *, but: str = "") -> None:
        """The key is gone, or reads another pod (the one with the UID `but`) from now on."""
        for uid, held in list(self._held.items()):
            if uid != but:
                held.readers.discard(key)
                if not held.readers:
                    del self._held[uid]

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _ask(self, held: _Held) -> None:
        answer = await self._get(held.url)
        now = held.asked = self._clock()
        if answer.report is not None:
            held.good = now
        elif held.answer.report is not None and now - held.good < GRACE_SECONDS:
            return
        held.answer = answer

    async def _get(self, url: str) -> Answer:
        body = bytearray()
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS), self._client.stream("GET", url) as response:
                if response.status_code != httpx.codes.OK:
                    return Answer(None, f"its /status answers {response.status_code}")
                if "Content-Encoding" in response.headers:  # a few packed bytes could fill the memory
                    return Answer(None, "its /status is no report of a collector")
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > MAX_BYTES:
                        return Answer(None, "its /status is too long")
        except (TimeoutError, httpx.TimeoutException):
            return Answer(None, f"its /status does not answer within {TIMEOUT_SECONDS:.0f} s")
        except httpx.HTTPError as e:
            return Answer(None, f"its /status cannot be read ({type(e).__name__})")
        try:
            return Answer(CollectorReport.model_validate_json(bytes(body)))
        except ValidationError:
            return Answer(None, "its /status is no report of a collector")

    def _told(self, answer: Answer) -> tuple[CollectorReport | None, str]:
        return (answer.report and self._shown(answer.report), answer.words)


def client() -> httpx.AsyncClient:
    """A client for pods: straight to their address, by no proxy of the environment."""
    return httpx.AsyncClient(trust_env=False, follow_redirects=False)


def _url(address: str) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{names.COLLECTOR_PORT}/status"
