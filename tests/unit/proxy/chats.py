"""Bodies of chat requests with pictures, and what becomes of a picture in them."""

from __future__ import annotations

import json
from typing import Any

from epd.proxy.media import MediaPolicy
from epd.proxy.requests import parse_chat
from epd.proxy.transport import Body

POLICY = MediaPolicy()
A: dict[str, Any] = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
B: dict[str, Any] = {"type": "image_url", "image_url": {"url": "data:image/png;base64,BBBB"}}


def chat(*content: Any, **fields: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": list(content)}], **fields}).encode()


def whole(body: Body) -> bytes:
    return body if isinstance(body, bytes) else b"".join(body)


def identifier(part: dict[str, Any]) -> str:
    [item] = parse_chat(chat(part), policy=POLICY).items
    assert item.identifier is not None
    return item.identifier
