from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epd.proxy.bodies import Bodies
from epd.proxy.dialects import SCORED_FIELDS
from epd.proxy.errors import InvalidRequestError
from epd.proxy.identifiers import HashAlgorithm
from epd.proxy.intake import Intake
from epd.proxy.lifting import LiftedBody
from epd.proxy.media import MediaPolicy
from epd.proxy.requests import ParsedRequest, primer_body
from epd.proxy.rewrite import Reported, without_pixels
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


def refusal(path: str, document: dict[str, Any]) -> tuple[str, str | None]:
    with pytest.raises(InvalidRequestError) as refused:
        parse(path, document)
    return refused.value.error_code, refused.value.param


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

DENIED = "media_domain_not_allowed"
SCHEME = "media_scheme_not_allowed"
INVALID = "invalid_request"
REFUSED: list[tuple[list[Place], dict[str, Any], str, str]] = [
    # where, what, the code and the field
    (CHAT_PLACES, {"type": "image_embeds", "image_embeds": "x"}, INVALID, ".image_embeds"),
    (CHAT_PLACES, {"type": "image_embeds", "image_embeds": None, "uuid": "k"}, INVALID, ".image_embeds"),
    (CHAT_PLACES, {"type": "text", "text": "t", "prompt_embeds": "x"}, INVALID, ".prompt_embeds"),
    (CHAT_PLACES, {"type": "prompt_embeds", "data": "x"}, INVALID, ".type"),
    (CHAT_PLACES, {"type": "image_pil", "image_pil": None, "uuid": "k"}, INVALID, ".type"),
    (CHAT_PLACES, {"type": "image_url", "image_url": None, "uuid": "k"}, INVALID, ".image_url"),
    (CHAT_PLACES, {"type": "input_audio", "input_audio": None, "uuid": "k"}, INVALID, ".input_audio"),
    (CHAT_PLACES, {"image_url": "http://10.0.0.1/", "uuid": "k"}, INVALID, ".image_url"),
    (CHAT_PLACES, {"type": "text", "text": "t", "video_url": {"url": DATA}, "uuid": "k"}, INVALID, ".video_url"),
    (CHAT_PLACES, input_image("file:///etc/passwd"), INVALID, ".image_url"),
    (CHAT_PLACES, {"type": "input_file", "file_url": "http://10.0.0.1/"}, INVALID, ".type"),
    (CHAT_PLACES, image_url("file:///etc/passwd"), SCHEME, ".image_url.url"),
    (CHAT_PLACES, image_url("http://10.0.0.1/"), DENIED, ".image_url.url"),
    (RESPONSES_PLACES, {"type": "image_embeds", "image_embeds": "x"}, INVALID, ".image_embeds"),
    (RESPONSES_PLACES, {"type": "input_text", "text": "t", "image_embeds": "x"}, INVALID, ".image_embeds"),
    (RESPONSES_PLACES, input_image(audio_embeds="x"), INVALID, ".audio_embeds"),
    (RESPONSES_PLACES, input_image(video_url={"url": "file:///x"}), INVALID, ".video_url"),
    (
        RESPONSES_PLACES,
        {"type": "input_text", "text": "t", "image_url": "file:///x", "uuid": "k"},
        INVALID,
        ".image_url",
    ),
    (RESPONSES_PLACES, {"type": "input_image", "file_id": "f"}, INVALID, ".file_id"),
    (RESPONSES_PLACES, input_image(file_id="f"), INVALID, ".file_id"),
    (RESPONSES_PLACES, input_image(None, uuid="k"), INVALID, ".image_url"),
    (RESPONSES_PLACES, input_image({"url": DATA}), INVALID, ".image_url"),
    (RESPONSES_PLACES, {"type": "input_file", "file_url": "http://10.0.0.1/"}, INVALID, ".type"),
    (RESPONSES_PLACES, {"type": "prompt_embeds", "data": "x"}, INVALID, ".type"),
    (RESPONSES_PLACES, {"image_pil": None, "uuid": "k"}, INVALID, ".type"),
    (RESPONSES_PLACES, image_url(), INVALID, ".type"),
    (RESPONSES_PLACES, input_image("file:///etc/passwd"), SCHEME, ".image_url"),
    (RESPONSES_PLACES, input_image("http://10.0.0.1/"), DENIED, ".image_url"),
    (MESSAGES_PLACES, image(type="url", url="file:///etc/passwd"), SCHEME, ".source.url"),
    (MESSAGES_PLACES, image(type="url", url="http://10.0.0.1/"), DENIED, ".source.url"),
    (MESSAGES_PLACES, image(type="url", url=""), INVALID, ".source.url"),
    (MESSAGES_PLACES, image(type="file", file_id="f"), INVALID, ".source"),
    (MESSAGES_PLACES, image(media_type="image/png", data="AAAA"), INVALID, ".source"),
    (MESSAGES_PLACES, image(type="base64", media_type="image/png,x", data="AAAA"), INVALID, ".source.media_type"),
    (MESSAGES_PLACES, image(type="base64", media_type=None, data="AAAA"), INVALID, ".source.media_type"),
    (MESSAGES_PLACES, image(type="base64", media_type="image/png", data=""), INVALID, ".source.data"),
    (MESSAGES_PLACES, image(type="base64", media_type="image/png", data="  "), INVALID, ".source.data"),
    (MESSAGES_PLACES, {"type": "image", "source": None}, INVALID, ".source"),
    (MESSAGES_PLACES, {"type": "document", "source": {"type": "url", "url": "http://10.0.0.1/"}}, INVALID, ".type"),
    (MESSAGES_PLACES, {"type": "search_result", "source": "http://10.0.0.1/"}, INVALID, ".type"),
    (MESSAGES_PLACES, {"type": "image_embeds", "image_embeds": "x"}, INVALID, ".image_embeds"),
    (MESSAGES_PLACES, image_url(), INVALID, ".type"),
    (MESSAGES_PLACES, {"type": "text", "text": "t", "image_url": {"url": DATA}, "uuid": "k"}, INVALID, ".image_url"),
    (SYSTEM_PLACES, image(), INVALID, ".type"),
    (SYSTEM_PLACES, {"type": "text", "text": "t", "image_embeds": "x"}, INVALID, ".image_embeds"),
]


@pytest.mark.parametrize(
    ("path", "document", "expected"),
    [
        pytest.param(path, body(part), (code, place + field), id=f"{path} {place} {number}")
        for number, (places, part, code, field) in enumerate(REFUSED)
        for path, body, place in places
    ],
)
def test_what_names_a_key_a_host_or_a_tensor_is_refused_at_its_place(
    path: str, document: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert refusal(path, document) == expected


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


@pytest.mark.parametrize("path", BODIES)
def test_at_the_top_tensors_are_refused_and_transfers_are_stripped(path: str) -> None:
    plain = BODIES[path]
    assert whole(parse(path, plain).body) == plain
    assert refusal(path, {**plain, "prompt_embeds": "x"}) == (INVALID, "prompt_embeds")
    extra = {"vllm_xargs": {**TRANSFER, "a": 1}, "request_id": "r", **TRANSFER}
    assert whole(parse(path, {**plain, **extra}).body) == {**plain, "vllm_xargs": {"a": 1}}


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/responses", "previous_input_messages"),
        ("/invocations", "previous_input_messages"),
        ("/pooling", "data"),
        ("/v1/embeddings", "data"),
        ("/invocations", "data"),
        ("/inference/v1/generate", "features"),
        ("/inference/v1/generate", "content_parts"),
    ],
)
def test_fields_of_one_route_are_refused(path: str, field: str) -> None:
    assert refusal(path, {**BODIES[path], field: [{"url": "http://10.0.0.1/"}]}) == (INVALID, field)


def test_transfers_are_stripped_where_a_route_has_them_elsewhere() -> None:
    sampling = {"extra_args": {**TRANSFER, "a": 1}, "n": 1}
    sent = whole(parse("/inference/v1/generate", {"token_ids": [1], "sampling_params": sampling}).body)
    assert sent == {"token_ids": [1], "sampling_params": {"extra_args": {"a": 1}, "n": 1}}


@pytest.mark.parametrize(
    ("path", "document", "param"),
    [
        ("/v1/responses", {}, "input"),
        ("/v1/responses", {"input": ["x"]}, "input[0]"),
        ("/v1/responses", {"input": [{"role": "user", "content": {}}]}, "input[0].content"),
        ("/v1/responses", {"input": [{"output": {"type": "computer_screenshot"}}]}, "input[0].output"),
        ("/v1/responses", {"input": [{"role": "user", "content": ["x"]}]}, "input[0].content[0]"),
        ("/v1/responses", {"input": [{"image_embeds": "x"}]}, "input[0].image_embeds"),
        ("/v1/responses", {"input": [input_image()]}, "input[0].image_url"),
        ("/v1/responses", {"input": "x", "previous_response_id": "../x"}, "previous_response_id"),
        ("/v1/responses", {"input": "x", "previous_response_id": 7}, "previous_response_id"),
        ("/v1/messages", {"messages": {}}, "messages"),
        ("/v1/messages", {"messages": ["x"]}, "messages[0]"),
        ("/v1/messages", {"messages": [{"role": "user"}]}, "messages[0].content"),
        ("/v1/messages", {"messages": [{"content": ["x"]}]}, "messages[0].content[0]"),
        ("/v1/messages", {"messages": [], "system": {}}, "system"),
        ("/tokenize", {"messages": "x"}, "messages"),
        ("/v1/embeddings", {"input": {}}, "input"),
        ("/v1/embeddings", {"input": [[[1]]]}, "input[0][0]"),
        ("/score", {"queries": [["x"]]}, "queries[0]"),
        ("/score", {"queries": {"image_embeds": "x"}}, "queries.image_embeds"),
        ("/rerank", {"query": {"content": "x"}}, "query.content"),
    ],
)
def test_what_is_malformed_is_refused(path: str, document: dict[str, Any], param: str) -> None:
    assert refusal(path, document) == (INVALID, param)


def test_what_is_scored_has_its_content_in_parts() -> None:
    for content in ("x", None, {}):
        with pytest.raises(InvalidRequestError, match="content must be a list of parts"):
            parse("/rerank", {"query": {"content": content}})


def primed(request: ParsedRequest) -> list[Any]:
    primer = whole(primer_body(request, request.items))
    assert primer["stream"] is False
    [message] = primer["messages"]
    return list(message["content"])


def test_responses_prime_their_images_and_name_none() -> None:
    url = "https://a.example/x.png"
    document = {
        "model": "m",
        "mm_processor_kwargs": {"a": 1},
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "t", "uuid": "k"}, input_image(uuid="k")]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": [input_image(url, detail="low")]},
            {"role": "user", "content": "x"},
            {"role": "user", "content": [input_image()]},
        ],
        "previous_response_id": "resp_1",
    }
    request = parse("/v1/responses", document)
    assert [(item.identifier, item.kind) for item in request.items] == [(None, "image"), (None, "image")]
    assert request.previous_response_id == "resp_1"
    sent = whole(request.body)
    assert sent["input"][0]["content"] == [{"type": "input_text", "text": "t"}, input_image()]
    assert sent["input"][2]["output"] == [input_image(url, detail="low")]
    assert (sent["input"][1], sent["input"][3:]) == (document["input"][1], document["input"][3:])  # type: ignore[index] # a list
    assert primed(request) == [image_url(), {"type": "image_url", "image_url": {"url": url, "detail": "low"}}]
    assert whole(primer_body(request, request.items))["mm_processor_kwargs"] == {"a": 1}


def test_messages_prime_their_images_and_name_none() -> None:
    url = "https://a.example/x.png"
    document = {
        "model": "m",
        "mm_processor_kwargs": {"a": 1},
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "t"}, {**image(), "cache_control": {}}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"source": 1}}]},
            {"role": "user", "content": [{**RESULT, "content": [image(type="url", url=url)]}, {**RESULT}]},
            {"role": "user", "content": [{**RESULT, "content": "x"}, image(type="base64", data="AAAB")]},
        ],
    }
    request = parse("/v1/messages", document)
    assert [item.identifier for item in request.items] == [None, None, None]
    sent = whole(request.body)
    assert sent["messages"][0]["content"] == [{"type": "text", "text": "t"}, image()]
    assert sent["messages"][2]["content"][0]["content"] == [image(type="url", url=url)]
    assert (sent["system"], sent["messages"][1]) == (document["system"], document["messages"][1])  # type: ignore[index] # a list
    # as the engine makes them of blocks, so that both compute one key
    assert primed(request) == [image_url(), image_url(url), image_url("data:image/jpeg;base64,AAAB")]
    # which the engine does not read in this dialect, so that its keys do not depend on it
    assert "mm_processor_kwargs" not in whole(primer_body(request, request.items))


@pytest.mark.parametrize(("path", "body", "place"), [*CHAT_PLACES[2:], MESSAGES_PLACES[2]])
def test_where_nothing_is_encoded_elsewhere_media_go_on_and_are_not_primed(
    path: str, body: Callable[[Any], dict[str, Any]], place: str
) -> None:
    part = image() if path.startswith("/v1/messages") else image_url()
    request = parse(path, body({**part, "uuid": "k"}))
    assert request.items == ()
    assert whole(request.body) == body(part)


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("/v1/chat/completions", {"messages": [{"content": [image_url(f"data:image/png;base64,{LONG}")]}]}),
        ("/v1/responses", {"input": [{"role": "user", "content": [input_image(f"data:image/png;base64,{LONG}")]}]}),
        ("/v1/messages", {"messages": [{"content": [image(type="base64", media_type="image/png", data=LONG)]}]}),
    ],
)
def test_equal_payloads_are_equal_in_each_dialect_lifted_or_not(path: str, document: dict[str, Any]) -> None:
    plain, lifted = parse(path, document), parse(path, document, lift=True)
    chat = parse("/v1/chat/completions", {"messages": [{"content": [image_url(f"data:image/png;base64,{LONG}")]}]})
    [item] = lifted.items
    assert item.key == plain.items[0].key == chat.items[0].key
    assert whole(lifted.body) == whole(plain.body)
    assert primed(lifted) == primed(plain)
    # but a primer that names its item publishes under another key than one that does not
    equal = item.identifier is not None
    assert (lifted.work_key(item, authorization="") == chat.work_key(chat.items[0], authorization="")) == equal


@pytest.mark.parametrize("place", [RESPONSES_PLACES[0], MESSAGES_PLACES[0]])
def test_media_are_left_out_in_chat_only(place: Place) -> None:
    path, body, _ = place
    request = parse(path, body(input_image() if path == "/v1/responses" else image()))
    [item] = request.items
    reported = {item.key: Reported(identifier="c" * 64, metadata={"image_grid_thw": [1, 8, 8]})}
    assert without_pixels(request, reported) is None


def shuffled(value: Any, order: random.Random) -> Any:
    """The same value with the members of its objects in another order."""
    if isinstance(value, dict):
        return {key: shuffled(value[key], order) for key in order.sample(list(value), len(value))}
    return [shuffled(each, order) for each in value] if isinstance(value, list) else value


def pictured(make: Callable[[int], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """Makes contents of two pictures, each of its own."""
    numbers = iter(range(1000))
    return lambda: {
        "role": "user",
        "content": [make(next(numbers)), {"type": "text", "text": "t"}, make(next(numbers))],
    }


def full(path: str) -> dict[str, Any]:
    """A body with another picture at each place at which the path takes one, and at some twice."""
    message = pictured(lambda number: image_url(f"data:image/png;base64,A{number:03}"))
    if path == "/v1/responses":
        item = pictured(lambda number: input_image(f"data:image/png;base64,A{number:03}"))
        return {"input": [{**item(), "output": item()["content"]} for _ in range(3)], "user": "u"}
    if path.startswith("/v1/messages"):
        block = pictured(lambda number: image(type="base64", media_type="image/png", data=f"A{number:03}"))
        return {"system": "s", "messages": [{"content": [{**RESULT, **block()}, *block()["content"]]}, block()]}
    if path in ("/v1/chat/completions", "/tokenize"):
        return {"model": "m", "messages": [message(), {"role": "tool", "content": "x"}, message()], "seed": 1}
    pooled = {"messages": [message(), [message()]], "input": [message(), [message(), message()]]}
    scored = {name: [message(), "x"] for name in SCORED_FIELDS if name != "query"}
    scored = {**scored, "query": message()}  # type: ignore[dict-item] # of no one type
    return {"/invocations": {**pooled, **scored}, "/v1/embeddings": pooled, "/pooling": pooled}.get(path, scored)


@pytest.mark.parametrize("seed", [1, 2**70], ids=["fast", "exact"])
@pytest.mark.parametrize("path", sorted({path for path, _, _ in [*CHAT_PLACES, *RESPONSES_PLACES, *MESSAGES_PLACES]}))
@given(st.integers(0, 2**32))
def test_media_stay_where_they_are_in_whatever_order_fields_come(path: str, seed: int, order: int) -> None:
    document = shuffled({**full(path), "seed": seed}, random.Random(order))
    request = parse(path, document)
    added = request.with_fields({"user": "other", "input_type": "x"}, dropped=("documents", "system"))
    kept = {name: value for name, value in document.items() if name not in ("documents", "system")}
    for sent, expected in ((request, document), (added, {**kept, "user": "other", "input_type": "x"})):
        assert without_names(whole(sent.body)) == expected
    replaced = request.body_with({item.key: json.dumps({"of": item.key}).encode() for item in request.items})
    assert json.dumps(whole(replaced)).count('"of"') == (len(request.parts) if request.items else 0)


def without_names(value: Any) -> Any:
    """A body without the identifiers that parts were given."""
    if isinstance(value, dict):
        return {key: without_names(each) for key, each in value.items() if key != "uuid"}
    return [without_names(each) for each in value] if isinstance(value, list) else value
