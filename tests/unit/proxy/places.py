"""Every place at which a dialect may have a part, parts that are put there, and how they are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from epd.proxy.bodies import Bodies
from epd.proxy.identifiers import HashAlgorithm
from epd.proxy.intake import Intake
from epd.proxy.lifting import LiftedBody
from epd.proxy.media import MediaPolicy
from epd.proxy.parsed import ParsedRequest
from epd.proxy.routes import find
from epd.proxy.transport import Body
from unit.proxy.bodytexts import base64_text

POLICY = MediaPolicy(allowed_domains=frozenset({"a.example"}))
OPENED = frozenset({"/invocations", "/inference/v1/generate"})
DATA = "data:image/png;base64,AAAA"
LONG = base64_text(0, 9000)
TRANSFER = {"ec_transfer_params": {"k": {}}, "kv_transfer_params": {"remote_host": "h"}}


def whole(body: Body) -> Any:
    return json.loads(body if isinstance(body, bytes) else b"".join(body))


def parse(path: str, document: dict[str, Any], *, lift: bool = False) -> ParsedRequest:
    reader = find("POST", path, opened=OPENED).route.parse
    assert reader is not None
    body: bytes | LiftedBody = json.dumps(document).encode()
    if lift:
        taken = Intake(share=Bodies(room=None).share(), limit=1 << 26, algorithm=HashAlgorithm.BLAKE3, length=None)
        taken.feed(json.dumps(document).encode())
        body = taken.lifted()
        assert body.payloads
    return reader(body, policy=POLICY)


def image_url(url: object = DATA, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}, **more}


def input_image(url: object = DATA, **more: Any) -> dict[str, Any]:
    return {"type": "input_image", "image_url": url, **more}


def image(**source: Any) -> dict[str, Any]:
    return {"type": "image", "source": source or {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


Place = tuple[str, Callable[[Any], dict[str, Any]], str]
"""A path, how a body looks that has something at a place, and the place."""

CHAT_PLACES: list[Place] = [
    (
        "/v1/chat/completions",
        lambda part: {"messages": [{"role": "user", "content": [part]}]},
        "messages[0].content[0]",
    ),
    ("/v1/chat/completions", lambda part: {"messages": [{}, {"content": ["a", part]}]}, "messages[1].content[1]"),
    ("/tokenize", lambda part: {"messages": [{"role": "user", "content": [part]}]}, "messages[0].content[0]"),
    ("/v1/embeddings", lambda part: {"messages": [{"content": [part]}]}, "messages[0].content[0]"),
    ("/v1/embeddings", lambda part: {"messages": [[{"content": [part]}]]}, "messages[0][0].content[0]"),
    ("/v1/embeddings", lambda part: {"input": [{"content": [part]}]}, "input[0].content[0]"),
    ("/v1/embeddings", lambda part: {"input": [[1], [{"content": [part]}]]}, "input[1][0].content[0]"),
    ("/pooling", lambda part: {"messages": [{"content": [part]}]}, "messages[0].content[0]"),
    ("/pooling", lambda part: {"input": [{"content": [part]}]}, "input[0].content[0]"),
    ("/invocations", lambda part: {"messages": [{"content": [part]}]}, "messages[0].content[0]"),
    ("/invocations", lambda part: {"input": [[{"content": [part]}]]}, "input[0][0].content[0]"),
    ("/invocations", lambda part: {"query": {"content": [part]}, "documents": []}, "query.content[0]"),
    *[
        (path, lambda part, name=name: {name: [{"content": [part]}]}, f"{name}[0].content[0]")
        for path in ("/score", "/v1/score")
        for name in ("queries", "documents", "items", "data_1", "data_2", "text_1", "text_2")
    ],
    *[
        (path, lambda part, name=name: {name: {"content": [part]}}, f"{name}.content[0]")
        for path in ("/rerank", "/v1/rerank", "/v2/rerank")
        for name in ("query", "documents")
    ],
]
RESPONSES_PLACES: list[Place] = [
    ("/v1/responses", lambda part: {"input": [{"role": "user", "content": [part]}]}, "input[0].content[0]"),
    (
        "/v1/responses",
        lambda part: {"input": [{"role": "x", "type": "message", "content": [part]}]},
        "input[0].content[0]",
    ),
    (
        "/v1/responses",
        lambda part: {"input": [{"type": "function_call_output", "output": [part]}]},
        "input[0].output[0]",
    ),
    (
        "/v1/responses",
        lambda part: {"input": [{"type": "custom_tool_call_output", "output": [part]}]},
        "input[0].output[0]",
    ),
    ("/v1/responses", lambda part: {"input": [{"type": "reasoning", "content": [part]}]}, "input[0].content[0]"),
]
RESULT = {"type": "tool_result", "tool_use_id": "t"}
MESSAGES_PLACES: list[Place] = [
    (path, body, place)
    for path in ("/v1/messages", "/v1/messages/count_tokens")
    for body, place in (
        (lambda block: {"messages": [{"role": "user", "content": [block]}]}, "messages[0].content[0]"),
        (
            lambda block: {"messages": [{"role": "user", "content": [{**RESULT, "content": [block]}]}]},
            "messages[0].content[0].content[0]",
        ),
    )
]
SYSTEM_PLACES: list[Place] = [
    (path, lambda block: {"system": [block], "messages": []}, "system[0]")
    for path in ("/v1/messages", "/v1/messages/count_tokens")
]


BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": []},
    "/v1/completions": {"prompt": [1, 2]},
    "/v1/responses": {"input": "x"},
    "/v1/messages": {"messages": []},
    "/v1/messages/count_tokens": {"messages": []},
    "/tokenize": {"prompt": "x"},
    "/detokenize": {"tokens": [1]},
    "/v1/embeddings": {"input": ["x"]},
    "/pooling": {"input": [[1, 2], [3]]},
    "/score": {"queries": "x", "documents": ["y", "z"]},
    "/v1/score": {"text_1": "x", "text_2": "y"},
    "/rerank": {"query": "x", "documents": ["y"]},
    "/v1/rerank": {"query": "x", "documents": "y"},
    "/v2/rerank": {"query": "x", "documents": ["y"]},
    "/invocations": {"prompt": "x"},
    "/inference/v1/generate": {"token_ids": [1]},
}
