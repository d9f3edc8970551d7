"""Inspection of server-sent events: is it content yet, or an error inside a 200.

Pure. vLLM answers a streamed request with 200 and a role chunk before it knows whether the engine can serve it, and
then sends `data: {"error": ...}` (vLLM entrypoints/openai/chat_completion/serving.py). So the head of a stream is held
until its first content; after that bytes pass in whole events, as they came.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

import orjson

from epd.proxy.transfers import TRANSFER_MARK, strip_answer

HEAD_LIMIT_BYTES: Final = 1 << 20
"""A role chunk has a few hundred bytes; a head that grew this large without content is no chat stream and is let go."""
EVENT_LIMIT_BYTES: Final = 16 << 20
"""The ids of a prompt of a million tokens take 7 MB, and nothing else of vLLM's streams grows as large."""

_EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n")
_BETWEEN_EVENTS: Final = re.compile(rb"((?:\r\n|\n){2,})")


class Verdict(Enum):
    """What the head of a stream has shown so far."""

    PENDING = auto()
    CONTENT = auto()
    ERROR = auto()


@dataclass(slots=True)
class StreamHead:
    """Collects a stream until it shows content or an error. `held` has every byte fed so far."""

    held: bytearray = field(default_factory=bytearray)
    verdict: Verdict = Verdict.PENDING
    error_status: int = 0
    error_body: bytes = b""
    _read: int = 0

    def feed(self, chunk: bytes) -> Verdict:
        """Take the next bytes; the verdict is final once it is not PENDING."""
        self.held += chunk
        while self.verdict is Verdict.PENDING and (end := _event_end(self.held, self._read)) > 0:
            self._judge(bytes(self.held[self._read : end]))
            self._read = end
        if self.verdict is Verdict.PENDING and len(self.held) > HEAD_LIMIT_BYTES:
            self.verdict = Verdict.CONTENT
        return self.verdict

    def _judge(self, event: bytes) -> None:
        data = event_data(event)
        if data is None:
            return
        try:
            document = orjson.loads(data)
        except ValueError:
            self.verdict = Verdict.CONTENT  # [DONE], or a dialect that only the client knows
            return
        if isinstance(document, dict) and isinstance(document.get("error"), dict):
            self.verdict = Verdict.ERROR
            self.error_status = _status_of(document["error"])
            self.error_body = data
        elif _shows_content(document):
            self.verdict = Verdict.CONTENT


class EventTooLargeError(Exception):
    """An event has more than EVENT_LIMIT_BYTES."""


class EventFilter:
    """Passes whole events and takes the transfer fields out of them.

    Part of an event is kept until its end is there; no client can use part of an event, so nothing is delayed. Costs
    less than 1 us for an event that ends where its chunk ends, as those of vLLM do.
    """

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = bytearray()

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes and return those that may be sent on. Raises EventTooLargeError."""
        if self._tail:
            self._tail += chunk
            if b"\n" not in chunk:
                # no event ends here; to look through all of it each time would take quadratic time
                self._check()
                return b""
            chunk = bytes(self._tail)
            self._tail = bytearray()
        if chunk[-2:] != b"\n\n":
            chunk = self._cut(chunk)
        # `in` would first try its operand as a number; from the end is the faster search
        return _strip_events(chunk) if chunk.rfind(TRANSFER_MARK) >= 0 else chunk

    def passes(self, framed: bytes) -> bool:
        """Whether a chunk with its framing may be sent on as it is: it ends an event, and has nothing to take out."""
        return not self._tail and framed[-4:] == b"\n\n\r\n" and framed.rfind(TRANSFER_MARK) < 0

    def finish(self) -> bytes:
        """Return what is left when the stream has ended."""
        tail = bytes(self._tail)
        self._tail = bytearray()
        return _strip_events(tail) if TRANSFER_MARK in tail else tail

    def _cut(self, data: bytes) -> bytes:
        end = max(at + len(mark) if (at := data.rfind(mark)) >= 0 else 0 for mark in _EVENT_ENDS)
        self._tail += data[end:]
        self._check()
        return data[:end]

    def _check(self) -> None:
        if len(self._tail) > EVENT_LIMIT_BYTES:
            raise EventTooLargeError(f"an event has more than {EVENT_LIMIT_BYTES} bytes")


def event_data(event: bytes) -> bytes | None:
    """Join the `data:` lines of one event; None for a comment or an event without data."""
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None


def _event_end(buffer: bytearray, start: int) -> int:
    ends = [at + len(mark) for mark in _EVENT_ENDS if (at := buffer.find(mark, start)) >= 0]
    return min(ends, default=0)


def _shows_content(document: Any) -> bool:
    """Whether a chunk has content; one that is none of vLLM's has."""
    choices = document.get("choices") if isinstance(document, dict) else None
    return not isinstance(choices, list) or any(_has_content(choice) for choice in choices)


def _has_content(choice: Any) -> bool:
    if not isinstance(choice, dict) or not choice:
        return True
    if choice.get("finish_reason") or choice.get("text"):
        return True
    delta = choice.get("delta")
    return isinstance(delta, dict) and any(value for name, value in delta.items() if name != "role")


def _status_of(error: dict[str, Any]) -> int:
    code = error.get("code")
    return code if isinstance(code, int) and 400 <= code <= 599 else 500


def _strip_events(data: bytes) -> bytes:
    """Strip each event, whose data may be in several lines; of one that has nothing to strip no byte is changed."""
    events = _BETWEEN_EVENTS.split(data)
    return b"".join([_strip_event(event) if TRANSFER_MARK in event else event for event in events])


def _strip_event(event: bytes) -> bytes:
    data = event_data(event)
    if data is None or (stripped := strip_answer(data)) == data:
        return event
    others = [line for line in event.splitlines() if not line.startswith(b"data:")]
    return b"\n".join([*others, *(b"data: " + line for line in stripped.splitlines())])
