"""Asks the tiny model for the colours of pictures that no cache has seen, and reads what the proxy says it did.

Talks HTTP to one base URL; knows nothing of Kubernetes.
"""

from __future__ import annotations

import base64
import io
import itertools
import json
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from PIL import Image

COLOURS = {
    "red": (220, 30, 30),
    "green": (30, 170, 60),
    "blue": (40, 60, 220),
    "yellow": (235, 215, 40),
    "white": (245, 245, 245),
    "black": (15, 15, 15),
    "orange": (245, 140, 20),
    "purple": (130, 40, 160),
}
"""What models/tinyvlm was trained to name."""
QUESTIONS = ("what colour is this", "what colour is the picture", "name the colour", "which colour do you see")
SIZE = 112
"""Pixels along a side, as in training; the model names colours reliably at this size alone."""

_seeds = itertools.count(int.from_bytes(os.urandom(4), "big"))


def picture(colour: str, *, size: int = SIZE) -> str:
    """A `data:` URL of a PNG in that colour, `size` pixels square, with noise that makes it unlike any other."""
    rng = random.Random(next(_seeds))
    red, green, blue = COLOURS[colour]
    image = Image.new("RGB", (size, size), (red, green, blue))
    for _ in range(40):  # a few pixels: enough for new bytes, too few for another colour
        shade = tuple(min(255, max(0, value + rng.randint(-12, 12))) for value in (red, green, blue))
        image.putpixel((rng.randrange(size), rng.randrange(size)), (shade[0], shade[1], shade[2]))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    text: str
    headers: httpx.Headers

    @property
    def encoders(self) -> tuple[str, ...]:
        """Names of the encoder pods that encoded for this request."""
        return tuple(name for name in self.headers.get("x-epd-encoders", "").split(",") if name)

    @property
    def items(self) -> tuple[str, ...]:
        """Identifiers of the items, as the encoders reported them."""
        return tuple(key for key in self.headers.get("x-epd-items", "").split(",") if key)

    @property
    def prefill(self) -> str:
        """Name of the prefill-side pod."""
        return str(self.headers.get("x-epd-prefill", ""))

    @property
    def model_version(self) -> str:
        """Model version of the prefill-side pod."""
        return str(self.headers.get("x-epd-model-version", ""))


def body(
    pictures: Sequence[str], *, question: str = QUESTIONS[0], stream: bool = False, **extra: Any
) -> dict[str, Any]:
    """A chat completion that shows `pictures` after the question."""
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in pictures]
    content = [{"type": "text", "text": question}, *parts]
    return {
        "model": "tinyvlm",
        "max_tokens": 12,
        "temperature": 0,
        "stream": stream,
        "messages": [{"role": "user", "content": content}],
        **extra,
    }


def post(
    url: str, request: dict[str, Any], *, seconds: float = 120, stream: Callable[..., Any] = httpx.stream
) -> Answer:
    """Send a chat completion to `url` (a base URL); a streamed answer is put together.

    `stream` may be that of an `httpx.Client`, whose connection is then used.
    """
    with stream("POST", f"{url}/v1/chat/completions", json=request, timeout=seconds) as response:
        raw = response.read().decode()
        if response.status_code != 200:
            return Answer(response.status_code, raw, response.headers)
        return Answer(200, _streamed(raw) if request.get("stream") else _whole(raw), response.headers)


def ask(url: str, pictures: Sequence[str], *, question: str = QUESTIONS[0], stream: bool = False) -> Answer:
    """Ask for the colours of `pictures`."""
    return post(url, body(pictures, question=question, stream=stream))


def _whole(raw: str) -> str:
    return str(json.loads(raw)["choices"][0]["message"]["content"]).strip()


def _streamed(raw: str) -> str:
    events = [line.removeprefix("data: ") for line in raw.splitlines() if line.startswith("data: ")]
    if not events or events[-1] != "[DONE]":
        raise AssertionError(f"the stream did not end: {raw[-500:]}")
    deltas = [
        json.loads(event)["choices"][0]["delta"].get("content") or ""
        for event in events[:-1]
        if '"choices":[{' in event
    ]
    return "".join(deltas).strip()
