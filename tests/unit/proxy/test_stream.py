from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epd.proxy.stream import (
    EVENT_LIMIT_BYTES,
    HEAD_LIMIT_BYTES,
    EventFilter,
    EventTooLargeError,
    StreamHead,
    Verdict,
    event_data,
)


def chunk(**delta: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


def event(document: object) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


ROLE = chunk(role="assistant", content="")
HELLO = chunk(content="Hello")
ERROR = event({"error": {"message": "no", "type": "BadRequestError", "code": 404}})
DONE = b"data: [DONE]\n\n"

HEADS = {
    "role, content": (ROLE + HELLO + DONE, Verdict.CONTENT),
    "role alone": (ROLE, Verdict.PENDING),
    "role without content": (chunk(role="assistant"), Verdict.PENDING),
    "role with null": (chunk(role="assistant", content=None, tool_calls=[]), Verdict.PENDING),
    "role and content at once": (chunk(role="assistant", content="x"), Verdict.CONTENT),
    "tool call": (ROLE + chunk(tool_calls=[{"index": 0}]), Verdict.CONTENT),
    "reasoning": (ROLE + chunk(reasoning_content="hm"), Verdict.CONTENT),
    "finish without content": (event({"choices": [{"delta": {}, "finish_reason": "stop"}]}), Verdict.CONTENT),
    "second choice": (event({"choices": [{"delta": {}}, {"delta": {"content": "x"}}]}), Verdict.CONTENT),
    "usage only": (event({"choices": [], "usage": {}}), Verdict.PENDING),
    "completion": (event({"choices": [{"text": "x"}]}), Verdict.CONTENT),
    "empty completion": (event({"choices": [{"text": "", "finish_reason": None}]}), Verdict.PENDING),
    "error at once": (ERROR, Verdict.ERROR),
    "error after the role": (ROLE + ERROR + DONE, Verdict.ERROR),
    "error after content": (ROLE + HELLO + ERROR, Verdict.CONTENT),
    "done at once": (DONE, Verdict.CONTENT),
    "comment": (b": ping\n\n", Verdict.PENDING),
    "comment, error": (b": ping\n\n" + ERROR, Verdict.ERROR),
    "carriage returns": ((ROLE + ERROR).replace(b"\n", b"\r\n"), Verdict.ERROR),
    "half an event": (HELLO[:-1], Verdict.PENDING),
    "no JSON": (b"data: hello\n\n", Verdict.CONTENT),
    "another dialect": (event({"type": "message_start"}), Verdict.CONTENT),
    "a list": (event([1]), Verdict.CONTENT),
    "null choices": (event({"choices": None}), Verdict.CONTENT),
    "choices that are none": (event({"choices": 3}), Verdict.CONTENT),
    "odd delta": (event({"choices": [{"delta": "x"}]}), Verdict.PENDING),
    "logprobs of nothing": (event({"choices": [{"delta": {"content": ""}, "logprobs": {}}]}), Verdict.PENDING),
    "role, usage, nothing": (ROLE + event({"choices": [], "usage": {}}) + DONE, Verdict.CONTENT),
    "refusal": (chunk(role="assistant", refusal="no"), Verdict.CONTENT),
    "error in two lines": (ERROR.replace(b'"type"', b'\ndata: "type"'), Verdict.ERROR),
    "odd choices": (event({"choices": [None]}), Verdict.CONTENT),
}


@pytest.mark.parametrize(("data", "verdict"), HEADS.values(), ids=HEADS.keys())
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
def test_the_verdict_does_not_depend_on_chunks(data: bytes, verdict: Verdict, size: int) -> None:
    head = StreamHead()
    for start in range(0, len(data), size):
        if head.feed(data[start : start + size]) is not Verdict.PENDING:
            break
    assert head.verdict is verdict
    assert data.startswith(bytes(head.held))
    if verdict is Verdict.ERROR:
        assert (head.error_status, json.loads(head.error_body)) == (404, json.loads(ERROR[6:]))


@pytest.mark.parametrize(
    ("code", "status"), [(404, 404), (500, 500), (599, 599), (200, 500), (600, 500), ("500", 500), (None, 500)]
)
def test_the_status_of_an_error_is_its_code(code: object, status: int) -> None:
    head = StreamHead()
    head.feed(event({"error": {"code": code}}))
    assert (head.verdict, head.error_status) == (Verdict.ERROR, status)


def test_a_head_without_end_is_let_go() -> None:
    head = StreamHead()
    assert head.feed(b"x" * HEAD_LIMIT_BYTES) is Verdict.PENDING
    assert head.feed(b"x") is Verdict.CONTENT


STRIPPED = event({"choices": []})
LAST = b'data: {"choices":[],"kv_transfer_params":{"remote_host":"10.0.0.9"}}\n\n'


@given(st.data())
def test_the_filter_strips_across_any_split_and_keeps_all_else(data: st.DataObject) -> None:
    events = data.draw(st.lists(st.sampled_from([ROLE, HELLO, DONE, LAST, b": ping\n\n"])))
    stream = b"".join(events)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    passes, seen = EventFilter(), b""
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        out = passes.feed(stream[start:end])
        assert out == b"" or out.endswith(b"\n\n")
        seen += out
    seen += passes.finish()
    assert seen == stream.replace(LAST, b'data: {"choices":[]}\n\n')


def test_the_filter_gives_back_a_tail_without_end() -> None:
    passes = EventFilter()
    assert passes.feed(HELLO + b"data: x") == HELLO
    assert passes.finish() == b"data: x"
    assert passes.finish() == b""


def test_a_large_event_is_kept_until_its_end() -> None:
    passes, text = EventFilter(), b"x" * 5000
    assert [passes.feed(part) for part in (b"data: ", text, text, b"\n", b"\nda")] == [
        *[b""] * 4,
        b"data: " + text + text + b"\n\n",
    ]
    assert passes.finish() == b"da"


@pytest.mark.parametrize("piece", [b"x" * (1 << 20), b"x\n" * (1 << 19)])
def test_an_event_without_end_is_refused(piece: bytes) -> None:
    passes = EventFilter()
    for _ in range(EVENT_LIMIT_BYTES >> 20):
        assert passes.feed(piece) == b""
    with pytest.raises(EventTooLargeError):
        passes.feed(b"x")


def test_events_that_end_in_carriage_returns_pass_too() -> None:
    passes = EventFilter()
    assert passes.feed(b"data: a\r\n\r\ndata: b\r\n") == b"data: a\r\n\r\n"
    assert passes.feed(b"\r\n") == b"data: b\r\n\r\n"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (
            b'event: x\r\ndata: {"a":NaN,"kv_transfer_params":{"remote_host":"h"}}\r\n\r\n',
            b'event: x\ndata: {"a":NaN}\r\n\r\n',
        ),
        (
            b'data: {"a":1e999,\ndata: "kv_transfer_params":\ndata: {"remote_host":"h"}}\n\n',
            b'data: {"a":1e999}\n\n',
        ),
        (b'data: {"ec_transfer_params":\ndata: {"k":{}},"a":1}\n\n', b'data: {"a":1}\n\n'),
        (b'data: {"a":1,"kv_transfer_params":{"remote_h\n\n', b'data: {"a":1\n\n'),
    ],
)
def test_events_that_can_not_be_read_are_stripped_too(raw: bytes, expected: bytes) -> None:
    assert EventFilter().feed(HELLO + raw + ROLE) == HELLO + expected + ROLE
    cut = EventFilter()
    assert cut.feed(raw.rstrip()) + cut.finish() == expected.rstrip()


def test_content_that_names_a_transfer_field_is_kept() -> None:
    words = chunk(content='"kv_transfer_params"')
    assert EventFilter().feed(words) == words


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"data: a\n\n", b"a"),
        (b"data:a\r\n\r\n", b"a"),
        (b"event: x\ndata: a\ndata: b\n\n", b"a\nb"),
        (b": comment\n\n", None),
    ],
)
def test_event_data(raw: bytes, expected: bytes | None) -> None:
    assert event_data(raw) == expected
