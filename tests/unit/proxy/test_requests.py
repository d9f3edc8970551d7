from __future__ import annotations

import json
import secrets
from dataclasses import replace
from typing import Any

import pytest

from epd.proxy.dialects import parse_text
from epd.proxy.errors import InvalidRequestError
from epd.proxy.parsed import primer_body
from epd.proxy.requests import parse_chat
from unit.proxy.chats import POLICY, A, B, chat, identifier, whole


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


def test_completions_keep_their_prompt_and_lose_transfer_fields() -> None:
    parsed = parse_text(b'{"prompt":[1,2],"ec_transfer_params":{}}', policy=POLICY)
    assert (parsed.body, parsed.items) == (b'{"prompt":[1,2]}', ())
    with pytest.raises(InvalidRequestError) as refusal:
        parse_text(b'{"prompt_embeds":"x"}', policy=POLICY)
    assert refusal.value.param == "prompt_embeds"
