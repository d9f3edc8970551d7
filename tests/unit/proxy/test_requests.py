from __future__ import annotations

import json
import secrets
from dataclasses import replace
from typing import Any

import pytest

from epd.proxy.dialects import parse_text
from epd.proxy.errors import InvalidRequestError
from epd.proxy.media import MediaPolicy
from epd.proxy.requests import parse_chat, primer_body
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


@pytest.mark.parametrize(
    "document",
    [
        {"messages": []},
        {"messages": [{"role": "user", "content": "hi"}], "temperature": 0.5},
        {"messages": [{"role": "assistant", "content": None, "tool_calls": []}]},
        {"messages": [{"role": "assistant", "tool_calls": []}]},
        {"messages": [{"role": "user", "content": ["a plain string", {"type": "text", "text": "x"}]}]},
        {"messages": [{"role": "user", "content": "\ud800 ü 🙂"}]},
    ],
)
def test_text_is_left_as_it_is(document: dict[str, Any]) -> None:
    parsed = parse_chat(json.dumps(document).encode(), policy=POLICY)
    assert parsed.items == ()
    assert json.loads(whole(parsed.body)) == document


def test_items_are_distinct_and_in_prompt_order_over_all_messages() -> None:
    messages = [{"role": "user", "content": [B, A]}, {"role": "tool", "content": [A]}]
    parsed = parse_chat(json.dumps({"messages": messages}).encode(), policy=POLICY)
    assert [item.part() for item in parsed.items] == [{**B, "uuid": identifier(B)}, {**A, "uuid": identifier(A)}]
    sent = json.loads(whole(parsed.body))["messages"]
    assert sent[1]["content"] == [{**A, "uuid": identifier(A)}]


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


@pytest.mark.parametrize("exact", [{}, {"seed": 2**64}], ids=["fast", "exact"])
@pytest.mark.parametrize("text", ["\0", "a\0b", '"\0"', "\\u0000"])
def test_a_text_that_looks_like_what_stands_for_media_is_left_as_it_is(text: str, exact: dict[str, Any]) -> None:
    parsed = parse_chat(chat(text, A, {"type": "text", "text": text}, user=text, **exact), policy=POLICY)
    sent = json.loads(whole(parsed.body))
    assert sent["messages"][0]["content"] == [text, {**A, "uuid": identifier(A)}, {"type": "text", "text": text}]
    assert sent["user"] == text


def test_what_stands_for_media_in_an_exact_document_is_known_to_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    marks: list[str] = []
    real = secrets.token_hex

    def noted(size: int) -> str:
        marks.append(real(size))
        return marks[-1]

    monkeypatch.setattr(secrets, "token_hex", noted)
    parse_chat(chat("a", A, seed=2**64), policy=POLICY)
    again = parse_chat(chat(marks[0], A, seed=2**64), policy=POLICY)
    assert (len(marks[0]), marks[0] != marks[1]) == (32, True)
    sent = whole(again.body)
    assert json.loads(sent)["messages"][0]["content"][0] == marks[0]
    assert marks[1].encode() not in sent


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


def test_what_clients_may_not_send_is_stripped() -> None:
    transfer = {"ec_transfer_params": {"x": {}}, "kv_transfer_params": {"remote_host": "h"}}
    text = {"type": "text", "text": "t", "uuid": "u"}
    body = chat(text, vllm_xargs={**transfer, "a": 1}, request_id="r", **transfer)
    assert json.loads(whole(parse_chat(body, policy=POLICY).body)) == {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "t"}]}],
        "vllm_xargs": {"a": 1},
    }


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (chat({"type": "image_embeds", "image_embeds": "x"}), "messages[0].content[0].image_embeds"),
        (chat("a", {"type": "text", "text": "t", "audio_embeds": "x"}), "messages[0].content[1].audio_embeds"),
        (chat({**A, "video_embeds": None}), "messages[0].content[0].video_embeds"),
        (chat({**A, "video_url": {"url": "file:///x"}}), "messages[0].content[0].video_url"),
        (chat({"type": "text", "text": "t", "image_url": {}}), "messages[0].content[0].image_url"),
        (chat({"image_url": {"url": "file:///x"}}), "messages[0].content[0].image_url"),
        (chat({"type": "input_image", "input_image": "file:///x"}), "messages[0].content[0].type"),
        (chat({"type": ["image_url"]}), "messages[0].content[0].type"),
        (chat({}), "messages[0].content[0].type"),
        (chat(7), "messages[0].content[0]"),
        (chat(prompt_embeds="x"), "prompt_embeds"),
        (b'{"messages":[{"content":{"type":"image_url"}}]}', "messages[0].content"),
        (b'{"messages":["x"]}', "messages[0]"),
        (b'{"messages":{}}', "messages"),
        (b"{}", "messages"),
    ],
)
def test_what_is_refused_names_its_path(body: bytes, param: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        parse_chat(body, policy=POLICY)
    assert refusal.value.param == param
    assert json.loads(refusal.value.body())["error"]["param"] == param


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'\xef\xbb\xbf{"messages":[]}',
        b'{"messages":[],"a":NaN}',
        b'{"messages":[],"a":1e999}',
        b'{"messages":[],"a":' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"messages":[],"a":' + b"[" * 100 + b"]" * 100 + b"}",
        b'{"messages":[],"a":' + b'{"a":' * 100 + b"1" + b"}" * 101,
    ],
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    for parse in (parse_chat, parse_text):
        with pytest.raises(InvalidRequestError) as refusal:
            parse(body, policy=POLICY)
        assert refusal.value.error_code == "invalid_json"


def test_deep_but_sensible_documents_pass() -> None:
    body = b'{"messages":[],"prompt":"x","a":' + b"[" * 99 + b"]" * 99 + b"}"
    assert parse_chat(body, policy=POLICY).body == b'{"messages":[],"prompt":"x","a":' + b"[" * 99 + b"]" * 99 + b"}"
    assert parse_text(body, policy=POLICY).items == ()


@pytest.mark.parametrize("value", [b"[]", b'{"a":0}', b'"ab"', b"1.5"])
def test_a_body_of_countless_small_values_is_refused_before_it_is_parsed(value: bytes) -> None:
    body = b'{"messages":[' + b",".join([value] * 2_000_001) + b"]}"
    for parse in (parse_chat, parse_text):
        with pytest.raises(InvalidRequestError) as refusal:
            parse(body, policy=POLICY)
        assert refusal.value.message == "the body has too many values"


@pytest.mark.parametrize(
    ("value", "most"), [("[]", 582_000), ('{"a":0}', 283_000), ('{"a%d":0,"b":1}', 204_000), ('"%d"', 1_165_000)]
)
def test_the_memory_of_what_is_parsed_is_bounded(value: str, most: int) -> None:
    def body(count: int) -> bytes:
        return f'{{"prompt":[{",".join(value % n if "%" in value else value for n in range(count))}]}}'.encode()

    parse_text(body(most), policy=POLICY)
    with pytest.raises(InvalidRequestError, match="too many values"):
        parse_text(body(most + 2000), policy=POLICY)


def test_a_prompt_of_a_million_tokens_passes() -> None:
    body = b'{"prompt":[' + b"12345," * 1_000_000 + b"1]}"
    assert parse_text(body, policy=POLICY).body == body


def test_a_large_picture_counts_as_one_value() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5_000_000}}
    assert len(parse_chat(chat(picture), policy=POLICY).items) == 1


def test_the_number_of_items_is_bounded() -> None:
    parts = [{"type": "input_audio", "input_audio": {"data": f"{n}", "format": "wav"}} for n in range(10_001)]
    assert len(parse_chat(chat(*parts[1:], *parts[1:]), policy=POLICY).items) == 10_000
    with pytest.raises(InvalidRequestError) as refusal:
        parse_chat(chat(*parts), policy=POLICY)
    assert refusal.value.param == "messages[0].content[10000]"


def test_what_every_primer_repeats_is_bounded() -> None:
    with pytest.raises(InvalidRequestError, match="model, mm_processor_kwargs are too large"):
        parse_chat(chat(A, model="m", mm_processor_kwargs={"a": "x" * 65536}), policy=POLICY)
    # without items there are no primers
    assert parse_chat(chat("t", mm_processor_kwargs={"a": "x" * 65536}), policy=POLICY).items == ()


def test_priority_travels_on_unless_it_is_to_be_ignored() -> None:
    body = chat(A, model="m", priority=-1)
    sent = []
    for policy in (POLICY, replace(POLICY, ignores_priority=True)):
        request = parse_chat(body, policy=policy)
        documents = (whole(request.body), whole(primer_body(request, request.items)))
        sent.append([json.loads(document).get("priority") for document in documents])
    assert sent == [[-1, -1], [None, None]]


def test_numbers_stay_exact() -> None:
    body = b'{"messages":[],"seed":18446744073709551617,"temperature":0.1}'
    assert parse_chat(body, policy=POLICY).body == body


def test_a_repeated_key_reaches_the_engine_once() -> None:
    parsed = parse_chat(b'{"messages":[{"content":[{"type":"image_pil"}]}],"messages":[]}', policy=POLICY)
    assert parsed.body == b'{"messages":[]}'


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


def test_completions_keep_their_prompt_and_lose_transfer_fields() -> None:
    parsed = parse_text(b'{"prompt":[1,2],"ec_transfer_params":{}}', policy=POLICY)
    assert (parsed.body, parsed.items) == (b'{"prompt":[1,2]}', ())
    with pytest.raises(InvalidRequestError) as refusal:
        parse_text(b'{"prompt_embeds":"x"}', policy=POLICY)
    assert refusal.value.param == "prompt_embeds"


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
