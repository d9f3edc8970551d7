"""Transfers: named for encoders by position, for engines by key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from epd.proxy.media import MediaPolicy
from epd.proxy.parsed import ParsedRequest, primer_body
from epd.proxy.pushes import TRANSFER_BYTES, Push, push
from epd.proxy.requests import parse_chat

PUSH = Push(consumer="tcp://10.0.0.9:14579", transfers=["t0", "t1"])


def request(*kinds: str, **fields: Any) -> ParsedRequest:
    content = [{"type": kind, kind: {"url": f"data:{kind[:5]}/x;base64,{n:04}"}} for n, kind in enumerate(kinds)]
    body = {"model": "m", "messages": [{"role": "user", "content": content}], **fields}
    return parse_chat(json.dumps(body).encode(), policy=MediaPolicy())


def answer(**entries: Any) -> bytes:
    return json.dumps({"ec_transfer_params": entries}).encode()


def test_a_primer_says_where_to_push_and_under_which_names() -> None:
    given = request("image_url", "image_url")
    body = json.loads(primer_body(given, given.items, PUSH.field()))  # type: ignore[arg-type] # nothing was lifted
    assert body == {
        "model": "m",
        "stream": False,
        "ec_transfer_params": {
            "consumer_zmq": "tcp://10.0.0.9:14579",
            "ec_items": [{"transfer_id": "t0"}, {"transfer_id": "t1"}],
        },
        "messages": [{"role": "user", "content": [item.part() for item in given.items]}],
    }


def test_each_item_has_a_name_of_its_own_each_time() -> None:
    given = request("image_url", "image_url", "image_url")
    ids = [*push("c", given, given.items).transfers, *push("c", given, given.items[:1]).transfers]
    assert len(set(ids)) == 4
    assert {len(each) for each in ids} == {2 * TRANSFER_BYTES}


@pytest.mark.parametrize(
    ("kind", "kwargs", "features"),
    [
        ("video_url", {"use_audio_in_video": True}, 2),
        ("video_url", {"use_audio_in_video": False}, 1),
        ("video_url", {}, 1),
        ("video_url", None, 1),
        ("video_url", 7, 1),
        ("audio_url", {"use_audio_in_video": True}, 1),
    ],
)
def test_the_sound_of_a_video_is_a_feature_where_it_is_heard(kind: str, kwargs: Any, features: int) -> None:
    given = request(kind, mm_processor_kwargs=kwargs)
    assert len(push("c", given, given.items).transfers) == features


def test_what_was_pushed_is_named_by_the_encoders_keys() -> None:
    first = {"item_indices": [0], "transfer_id": "t0", "metadata": {}}
    second = {"item_indices": [1], "transfer_id": "t1"}
    expected = ({"mm_hash": "b", "transfer_id": "t1"}, {"mm_hash": "a", "transfer_id": "t0"})
    assert PUSH.read(answer(b=second, a=first)) == expected
    # equal to the encoder, and pushed twice
    both = {"item_indices": [0, 1], "transfer_id": "t1"}
    assert [entry["transfer_id"] for entry in PUSH.read(answer(a=both))] == ["t0", "t1"]


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"[]",
        b"{}",
        b'{"ec_transfer_params":null}',
        b'{"ec_transfer_params":[1]}',
        answer(a=1),
        answer(a={"item_indices": [0], "transfer_id": "t0"}),
        answer(a={"item_indices": [0, 2], "transfer_id": "t0"}),
        answer(a={"item_indices": [0, -1], "transfer_id": "t0"}),
        answer(a={"item_indices": [0, "1"], "transfer_id": "t0"}),
        answer(a={"item_indices": None, "transfer_id": "t0"}),
        # one that publishes in another way
        answer(a={"item_indices": [0, 1]}),
        answer(a={"item_indices": [0, 1], "transfer_id": "t2"}),
    ],
)
def test_an_answer_that_leaves_one_out_names_none(said: bytes) -> None:
    assert PUSH.read(said) == ()
