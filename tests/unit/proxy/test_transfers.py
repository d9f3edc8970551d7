from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epd.proxy.transfers import TRANSFER_FIELDS, strip_answer


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b'{"a": 1}', b'{"a": 1}'),
        (b'{"a":1,"kv_transfer_params":null,"ec_transfer_params":{"k":{}}}', b'{"a":1}'),
        (b'{"a":1,"kv_transfer_params":null,"ec_transfer_params":null}', b'{"a":1}'),
        (b'{"kv_transfer_params":null,"a":123456789012345678901}', b'{"a":123456789012345678901}'),
        (b'{"a":",\\"kv_transfer_params\\":null"}', b'{"a":",\\"kv_transfer_params\\":null"}'),
        (b'{"kv_transfer_params":1,"a":' + b"[" * 300 + b"]" * 300 + b"}", b'{"a":' + b"[" * 300 + b"]" * 300 + b"}"),
        (b'{"type":"x","response":{"id":"r","kv_transfer_params":{}}}', b'{"type":"x","response":{"id":"r"}}'),
        (b'{"message":{"ec_transfer_params":{}},"ec_transfer_params":1}', b'{"message":{}}'),
        (
            b'{"message": "x", "other": {"kv_transfer_params": 1}}',
            b'{"message": "x", "other": {"kv_transfer_params": 1}}',
        ),
        (b'{"text": "say kv_transfer_params"}', b'{"text": "say kv_transfer_params"}'),
        (b'["kv_transfer_params"]', b'["kv_transfer_params"]'),
        # what can't be read, or not be written as it was
        (b'{"kv_transfer_params": ', b"{"),
        (b'{"a":NaN,"kv_transfer_params":{"remote_host":"h"}}', b'{"a":NaN}'),
        (b'{"kv_transfer_params":{"a":[-Infinity,"}\\""]}, "a": 1}', b'{ "a": 1}'),
        (b'{"a":1e999, "ec_transfer_params" : [{"k":1},2] ,"b":1}', b'{"a":1e999,"b":1}'),
        (b'{"a":[NaN,"\\"kv_transfer_params\\":1"]}', b'{"a":[NaN,"\\"kv_transfer_params\\":1"]}'),
        (b'{"a":"\xff","kv_transfer_params":"h","ec_transfer_params":1}', b'{"a":"\xff"}'),
        (b'{"a":1,"kv_transfer_params":{"remote_host":"10.0.', b'{"a":1'),
        (b'{"a":1,"kv_transfer_params":"10.0\\', b'{"a":1'),
        (b'[{"kv_transfer_params":{}},{"a":1}]', b'[{},{"a":1}]'),
        (b'{"a":' + b"[" * 5000 + b',"kv_transfer_params":1', b'{"a":' + b"[" * 5000),
    ],
)
def test_answers_lose_transfer_fields_and_nothing_else(answer: bytes, expected: bytes) -> None:
    assert strip_answer(answer) == expected


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS, lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=4), each, max_size=3)
)


@given(
    st.dictionaries(st.text(max_size=4), VALUES, max_size=4), VALUES, st.sampled_from(TRANSFER_FIELDS), st.integers(0)
)
def test_no_transfer_field_passes_whatever_stands_beside_it(rest: Any, value: Any, name: str, place: int) -> None:
    members = list(rest.items())
    members.insert(place % (len(members) + 1), (name, [value, "secret-host"]))
    answer = json.dumps(dict(members)).encode()
    # equal as text, since NaN is not equal to itself
    assert json.dumps(json.loads(strip_answer(answer))) == json.dumps(json.loads(json.dumps(rest)))
    for end in range(len(answer)):
        # no part of a field's value either
        assert b"secret-host" not in strip_answer(answer[:end])
