"""Requests to one engine, past the proxy: the primer, pictures with and without pixels, and the connector's counters.

What the proxy sends, made by hand, so that a test can do what a proxy must not. Knows nothing of Kubernetes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import httpx

from cluster.chat import Answer, body, post

Metadata = Mapping[str, Any]
"""What an encoder reports of an item, such as `image_grid_thw`."""

_SAMPLE = re.compile(r"vllm:epd_ec_(\w+)\{(.*)\} (\S+)")
_REASON = re.compile(r'reason="(\w+)"')


def primer(items: Mapping[str, str], **extra: Any) -> dict[str, Any]:
    """The body of what an encoder is asked for pictures (uuid to `data:` URL)."""
    parts = [{"type": "image_url", "image_url": {"url": url}, "uuid": uuid} for uuid, url in items.items()]
    return {"model": "tinyvlm", "messages": [{"role": "user", "content": parts}], **extra}


def prime(encoder: str, items: Mapping[str, str], **extra: Any) -> dict[str, Metadata]:
    """Let an encoder encode pictures (uuid to `data:` URL); return metadata by the identifier that it reports."""
    response = httpx.post(f"{encoder}/v1/chat/completions", json=primer(items, **extra), timeout=120)
    assert response.status_code == 200, response.text
    return {key: told["metadata"] for key, told in (response.json()["ec_transfer_params"] or {}).items()}


def with_pixels(uuid: str, url: str, **extra: Any) -> dict[str, Any]:
    """The body of a chat about one picture, as the proxy sends it when it keeps the pixels."""
    request = body([url], **extra)
    request["messages"][0]["content"][1]["uuid"] = uuid
    return request


def ask_with_pixels(engine: str, uuid: str, url: str, **extra: Any) -> Answer:
    """Send `with_pixels`."""
    return post(engine, with_pixels(uuid, url, **extra))


def without_pixels(uuid: str, metadata: Metadata, **extra: Any) -> dict[str, Any]:
    """The body of a chat about one picture of which only the encoder's metadata is sent."""
    request = body([], **extra)
    request["messages"][0]["content"].append({"type": "image_embeds", "image_embeds": dict(metadata), "uuid": uuid})
    return request


def ask_without_pixels(engine: str, uuid: str, metadata: Metadata, **extra: Any) -> Answer:
    """Send `without_pixels`."""
    return post(engine, without_pixels(uuid, metadata, **extra))


def counters(engine: str) -> Counter[str]:
    """The connector's counters and gauges: `hits`, `rejects/torn`, ...; 0 for what has not happened."""
    found: Counter[str] = Counter()
    for line in httpx.get(f"{engine}/metrics", timeout=10).text.splitlines():
        if match := _SAMPLE.match(line):
            reason = _REASON.search(match[2])
            name = match[1].removesuffix("_total")
            found[f"{name}/{reason[1]}" if reason else name] += float(match[3])  # type: ignore[assignment]  # seconds
    return found


def healthy(engine: str) -> bool:
    """Whether the engine lives."""
    return httpx.get(f"{engine}/health", timeout=10).status_code == 200
