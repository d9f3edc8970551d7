"""The access log: one line of JSON per request that is worth one. Never bodies, keys, or URLs of media.

Requests cost nothing but a look at how they ended; lines are made and written by a thread of their own, in batches, so
that whoever reads them slowly holds up nobody. What is more than it takes is counted and dropped.
"""

from __future__ import annotations

import asyncio
import json
import queue
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from epd.proxy.record import BROKEN, FAILED, Record

FLUSH_SECONDS: Final = 0.5
"""How old lines get before they are written: nobody reads faster."""
WAITING_LINES: Final = 10_000
"""Records that wait to be written, about 10 MB; at 1,000 requests/s a reader may pause for 10 s."""
CLOSE_SECONDS: Final = 1.0
"""How long the end of the process waits for the last lines."""
_ERRORS: Final = frozenset({FAILED, BROKEN})


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Which requests get a line: those that failed if `errors`, and the share `rate` (0 to 1) of all."""

    errors: bool = True
    rate: float = 0.0


NO_ACCESS_LOG: Final = AccessPolicy(errors=False)


def parse_access_policy(text: str) -> AccessPolicy:
    """Read `None`, `Errors`, `All` or `Sampled:0.01`, which has all errors too. Raises ValueError."""
    named = {"None": NO_ACCESS_LOG, "Errors": AccessPolicy(), "All": AccessPolicy(rate=1.0)}
    if text in named:
        return named[text]
    kind, _, share = text.partition(":")
    try:
        rate = float(share)
    except ValueError:
        rate = -1.0
    if kind != "Sampled" or not 0 < rate <= 1:
        raise ValueError(f"{text!r} is none of None, Errors, All, and Sampled:0.01 for one request in a hundred")
    return AccessPolicy(rate=rate)


class AccessLog:
    """Writes records of requests. `write` takes whole lines and may block."""

    def __init__(
        self, policy: AccessPolicy, *, write: Callable[[bytes], object], chance: Callable[[], float] = random.random
    ) -> None:
        self._policy = policy
        self._write = write
        self._chance = chance
        self._waiting: list[tuple[float, Record]] = []
        self._dropped = 0
        self._timer: asyncio.TimerHandle | None = None
        self._batches: queue.SimpleQueue[tuple[list[tuple[float, Record]], int] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="access-log", daemon=True)
        self._thread.start()

    def wants(self, outcome: str) -> bool:
        """Whether a request that ended so gets a line."""
        policy = self._policy
        return (policy.errors and outcome in _ERRORS) or (policy.rate > 0 and self._chance() < policy.rate)

    def note(self, record: Record) -> None:
        """Have a line written."""
        if len(self._waiting) >= WAITING_LINES:
            self._dropped += 1
            return
        self._waiting.append((time.time(), record))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self._flush)

    def close(self) -> None:
        """Write what is left, within a second."""
        if self._timer is not None:
            self._timer.cancel()
        self._hand_over()
        self._batches.put(None)
        self._thread.join(CLOSE_SECONDS)

    def _flush(self) -> None:
        self._timer = None
        if self._batches.empty():
            self._hand_over()
        else:
            # the reader is behind: what comes meanwhile waits here, up to the bound
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self._flush)

    def _hand_over(self) -> None:
        if self._waiting or self._dropped:
            self._batches.put((self._waiting, self._dropped))
            self._waiting, self._dropped = [], 0

    def _run(self) -> None:
        while (batch := self._batches.get()) is not None:
            records, dropped = batch
            lines = [_json(line(record, at=at)) for at, record in records]
            if dropped:
                lines.append(_json({"dropped": dropped}))
            self._write(b"".join(lines))


def _json(said: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(said, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        # half of a surrogate pair, in a name that is no UTF-8: what it is has to be readable here of all places
        return json.dumps(said).encode() + b"\n"


def line(record: Record, *, at: float) -> dict[str, Any]:
    """What is said of a request that was over `at` seconds after the epoch; fields without a value are left out."""
    headers, trail = record.headers, record.trail
    encoders = headers.get("x-epd-encoders")
    said = {
        "time": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "request_id": record.request_id,
        "trace_id": record.trace_id,
        "tenant": record.tenant or None,
        "method": record.method,
        "route": record.route,
        "status": record.status,
        "code": record.code,
        "outcome": record.outcome,
        "seconds": round(record.seconds, 6),
        "queued_seconds": round(sum(wait.ended - wait.begun for wait in trail.waits) / 1e9, 6) or None,
        "first_token_seconds": None if trail.first_token is None else round(trail.first_token, 6),
        "received_bytes": record.received,
        "sent_bytes": record.sent,
        "encode": headers.get("x-epd-encode"),
        "encoders": encoders.split(",") if encoders else None,
        "prefill": headers.get("x-epd-prefill"),
        "decode": headers.get("x-epd-decode"),
        "model_version": headers.get("x-epd-model-version"),
        "retries": [f"{retry.role}:{retry.cause}" for retry in trail.retries] or None,
    }
    return {name: value for name, value in said.items() if value is not None}
