from __future__ import annotations

import json
from typing import Any

import pytest

from epd.proxy.parsed import primer_body
from epd.proxy.requests import parse_chat
from unit.proxy.chats import POLICY, A, B, chat, identifier, whole


def test_parts_are_where_media_stand_in_the_body() -> None:
    low = {"type": "image_url", "image_url": {**A["image_url"], "detail": "low"}}
    messages = [{"content": [B, "A", A], "role": "user"}, {"role": "tool", "content": [{"type": "text", "text": "t"}]}]
    body = {"user": "first", "messages": [*messages, {"role": "user", "content": [low]}], "last": {"x": 1.5}}
    parsed = parse_chat(json.dumps(body).encode(), policy=POLICY)
    a, b = identifier(A), identifier(B)
    # equal items, although their parts differ
    assert [item.identifier for item in parsed.items] == [b, a]
    named = [(b, {**B, "uuid": b}), (a, {**A, "uuid": a}), (a, {**low, "uuid": a})]
    assert [(key, json.loads(part)) for key, part in parsed.parts] == named
    assert parsed.body_with({}) == parsed.body
    other = json.loads(whole(parsed.body_with({a: b'{"type":"x"}'})))
    body["messages"][0]["content"] = [{**B, "uuid": b}, "A", {"type": "x"}]  # type: ignore[index] # of no one type
    body["messages"][2]["content"] = [{"type": "x"}]  # type: ignore[index] # as above
    assert (other, list(other)) == (body, list(body))


@pytest.mark.parametrize("seed", [1, 2**70])
def test_fields_are_written_into_a_body_beside_its_media(seed: int) -> None:
    parsed = parse_chat(chat("a", A, B, stream=True, seed=seed, max_tokens=5), policy=POLICY)
    [message] = json.loads(whole(parsed.body))["messages"]
    other = parsed.with_fields({"max_tokens": 1, "kv_transfer_params": {"a": None}}, dropped=("stream", "absent"))
    expected = {"messages": [message], "seed": seed, "max_tokens": 1, "kv_transfer_params": {"a": None}}
    assert json.loads(whole(other.body)) == expected
    assert (other.items, other.parts) == (parsed.items, parsed.parts)
    text = parse_chat(chat("a", seed=seed), policy=POLICY).with_fields({"n": 1})
    assert json.loads(whole(text.body)) == {"messages": [{"role": "user", "content": ["a"]}], "seed": seed, "n": 1}


def test_a_primer_has_the_items_and_what_keys_depend_on() -> None:
    options = {"mm_processor_kwargs": {"a": 1}, "media_io_kwargs": {"video": {"fps": 1}}, "priority": 0}
    request = parse_chat(
        chat(A, {"type": "text", "text": "t"}, model="m", session_id="s", temperature=1, stream=True, **options),
        policy=POLICY,
    )
    assert json.loads(whole(primer_body(request, request.items))) == {
        "model": "m",
        "session_id": "s",
        **options,
        "stream": False,
        "messages": [{"role": "user", "content": [{**A, "uuid": identifier(A)}]}],
    }


def test_work_is_shared_only_between_requests_of_equal_keys() -> None:
    def key(authorization: str = "", part: dict[str, Any] = A, **fields: Any) -> tuple[str, ...]:
        request = parse_chat(chat(part, **fields), policy=POLICY)
        return request.work_key(request.items[0], authorization=authorization)

    assert key() == key(temperature=1, stream=True)
    variants = [key(), key("Bearer x"), key(part=B), key(model="m"), key(mm_processor_kwargs={"a": 1})]
    assert len(set(variants)) == len(variants)


def test_results_are_equal_whenever_they_are_made() -> None:
    def key(part: dict[str, Any] = A, **fields: Any) -> str:
        request = parse_chat(chat(part, **fields), policy=POLICY)
        [found] = request.result_keys().values()
        return found

    big = 2**70
    assert key(model="m", priority=1, session_id="s", stream=True) == key(priority=2, model="m") == key(model="m")
    options = [{"a": 1}, {"a": big}, {"a": big + 1}, {"a": "\ud800"}]
    variants = [key(), key(part=B), key(model="m"), *(key(mm_processor_kwargs=each) for each in options)]
    assert len(set(variants)) == len(variants)


def test_encoders_get_another_name_of_the_model_and_the_prefill_side_does_not() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    messages = [{"role": "user", "content": [picture]}]
    body = {"model": "legal", "session_id": "s", "priority": 1, "messages": messages}
    request = parse_chat(json.dumps(body).encode(), policy=POLICY)
    base = request.of_model("qwen")
    assert (request.model, base.model, base.body) == ("legal", "qwen", request.body)
    other = parse_chat(json.dumps({**body, "model": "qwen"}).encode(), policy=POLICY)
    assert (base.options, base.result_options) == (other.options, other.result_options)
    assert parse_chat(json.dumps({"model": 7, "messages": messages}).encode(), policy=POLICY).model == ""
