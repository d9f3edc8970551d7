"""Preempts requests whose entries are gone: their KV cache is thrown away, and their pictures are needed again.

For the prefill side of `fragile`, whose KV cache holds two of three such requests. Asserts nothing.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from cluster.chat import body, picture, post
from cluster.deployed import sample
from cluster.engine_requests import Metadata, without_pixels

LONG_ANSWER = 1200
LARGE = 224
"""Pixels along a side of a picture of 64 embeddings, the most that the model takes."""
LOST = 0
"""Instead of an HTTP status: the connection was closed."""


@dataclass(frozen=True)
class Ended:
    """Tokens that came of a stream, and whether it ended as it should."""

    tokens: int
    complete: bool


@dataclass(frozen=True)
class Preempted:
    """The streams, and the HTTP statuses of the requests that pushed them out of the engine's own cache."""

    streams: list[Ended]
    others: set[int]


def preempt(engine: str, told: Mapping[str, Metadata], forget: Callable[[str], None]) -> Preempted:
    """Ask for three long answers without pixels, `forget` their entries once all have begun, and crowd the engine."""
    # 2,560 embeddings, more than its own cache holds; made beforehand, since they have to be there before a preemption.
    others = [body([picture("white", size=LARGE) for _ in range(4)], max_tokens=1) for _ in range(10)]
    streams = [
        _Stream(engine, without_pixels(uuid, metadata, **_long_answer(number)))
        for number, (uuid, metadata) in enumerate(told.items())
    ]
    for stream in streams:
        stream.begun.wait(timeout=60)
    for uuid in told:
        forget(uuid)
    statuses = {_status(engine, request) for request in others}
    return Preempted([stream.end() for stream in streams], statuses)


def preemptions(engine: str) -> float:
    """vLLM's own count."""
    return sample(httpx.get(f"{engine}/metrics", timeout=10).text, "vllm:num_preemptions_total")


def _status(engine: str, request: dict[str, Any]) -> int:
    try:
        return post(engine, request).status
    except httpx.TransportError:
        return LOST


def _long_answer(number: int) -> dict[str, Any]:
    """An answer of `LONG_ANSWER` tokens; the requests are told apart so that nothing is shared."""
    return {
        "question": "what colour is this" + " please" * number,
        "stream": True,
        "max_tokens": LONG_ANSWER,
        "min_tokens": LONG_ANSWER,
        "ignore_eos": True,
    }


class _Stream:
    """A streamed answer that is read in a thread of its own."""

    def __init__(self, engine: str, request: dict[str, Any]) -> None:
        self.begun = threading.Event()
        self._chunks, self._done = 0, False
        self._thread = threading.Thread(target=self._read, args=(f"{engine}/v1/chat/completions", request))
        self._thread.start()

    def _read(self, url: str, request: dict[str, Any]) -> None:
        request |= {"stream_options": {"include_usage": True}}
        try:
            with httpx.stream("POST", url, json=request, timeout=300) as response:
                for line in response.iter_lines():
                    self.begun.set()
                    if line == "data: [DONE]":
                        self._done = True
                    elif line.startswith("data: ") and (usage := json.loads(line[6:]).get("usage")):
                        self._chunks = usage["completion_tokens"]
        except httpx.TransportError:
            self.begun.set()  # it ends here, incomplete

    def end(self) -> Ended:
        """Wait for its end."""
        self._thread.join(timeout=300)
        return Ended(self._chunks, self._done)
