"""Bodies of every dialect: what is primed of them, what goes on, and that it stays where it is."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epd.proxy.dialects import SCORED_FIELDS
from epd.proxy.parsed import ParsedRequest, primer_body
from epd.proxy.rewrite import Reported, without_pixels
from unit.proxy.places import (
    CHAT_PLACES,
    LONG,
    MESSAGES_PLACES,
    RESPONSES_PLACES,
    RESULT,
    TRANSFER,
    Place,
    image,
    image_url,
    input_image,
    parse,
    whole,
)


def test_transfers_are_stripped_where_a_route_has_them_elsewhere() -> None:
    sampling = {"extra_args": {**TRANSFER, "a": 1}, "n": 1}
    sent = whole(parse("/inference/v1/generate", {"token_ids": [1], "sampling_params": sampling}).body)
    assert sent == {"token_ids": [1], "sampling_params": {"extra_args": {"a": 1}, "n": 1}}


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
