"""Bodies of every dialect that are refused, and by which field."""

from __future__ import annotations

from typing import Any

import pytest

from epd.proxy.errors import InvalidRequestError
from unit.proxy.places import (
    BODIES,
    CHAT_PLACES,
    DATA,
    MESSAGES_PLACES,
    RESPONSES_PLACES,
    SYSTEM_PLACES,
    TRANSFER,
    Place,
    image,
    image_url,
    input_image,
    parse,
    whole,
)


def refusal(path: str, document: dict[str, Any]) -> tuple[str, str | None]:
    with pytest.raises(InvalidRequestError) as refused:
        parse(path, document)
    return refused.value.error_code, refused.value.param


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
