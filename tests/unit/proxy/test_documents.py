from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epd.proxy.documents import read, read_unbounded, write, write_exactly
from epd.proxy.errors import InvalidRequestError
from unit.proxy.bodytexts import NO_NUMBERS, NUMBERS, render, values


def meaning(value: object) -> object:
    """A value in a form in which 1, 1.0 and true differ, and 0.0 and -0.0."""
    if isinstance(value, dict):
        return {key: meaning(child) for key, child in value.items()}
    return [meaning(child) for child in value] if isinstance(value, list) else (type(value), repr(value))


def again(body: bytes) -> bytes:
    document, exact = read(body)
    return write_exactly(document) if exact else write(document)


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_stay_what_they_are(number: str) -> None:
    body = b'{"a":[%b]}' % number.encode()
    assert meaning(json.loads(again(body))) == meaning(json.loads(body))


@pytest.mark.parametrize("number", NO_NUMBERS)
def test_what_is_no_number_that_an_engine_can_have_is_refused(number: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        again(b'{"a":%b}' % number.encode())
    assert refusal.value.error_code == "invalid_json"


@pytest.mark.parametrize(
    ("body", "exact"),
    [
        (b'{"a":1,"b":"\xc3\xbc \\ud83d\\ude00 \\u0000"}', False),
        (b'{"a":999999999999999999}', False),
        (b'{"a":1000000000000000000}', True),
        (b'{"a":"\\ud800"}', True),
    ],
)
def test_orjson_reads_what_it_reads_rightly(body: bytes, exact: bool) -> None:
    assert read(body)[1] == exact
    assert json.loads(again(body)) == json.loads(body)


@given(values, st.integers(0, 2**32))
def test_documents_are_read_as_python_reads_them(node: Any, seed: int) -> None:
    body = render(("obj", [("a", node), ("b", node)]), random.Random(seed)).encode("utf-8", "surrogatepass")
    try:
        expected = json.loads(body.decode())
    except ValueError:
        with pytest.raises(InvalidRequestError):
            read(body)
        return
    assert meaning(read(body)[0]) == meaning(read_unbounded(body)[0]) == meaning(expected)
    assert meaning(json.loads(again(body))) == meaning(expected)


@given(st.binary(max_size=40) | st.text('[]{}",:0123456789.eE+-truefalsn \\u', max_size=20).map(str.encode))
def test_no_bytes_are_read_that_python_refuses(body: bytes) -> None:
    body = b'{"a":%b}' % body
    try:
        expected = json.loads(body.decode(), parse_constant=lambda name: [][0])
    except (ValueError, IndexError):
        with pytest.raises(InvalidRequestError):
            read(body)
        return
    assert meaning(read(body)[0]) == meaning(expected)


@pytest.mark.parametrize("value", [2**64, "\ud800", {"\ud800": -(2**63) - 1}])
def test_what_orjson_can_not_write_is_written(value: Any) -> None:
    assert json.loads(write(value)) == value


def test_keys_are_sorted_if_asked() -> None:
    assert write({"b": 1, "a": 2}, sort_keys=True) == b'{"a":2,"b":1}'
    assert write({"b": 2**64, "a": 2}, sort_keys=True) == b'{"a":2,"b":18446744073709551616}'


def test_depth_is_bounded_for_clients_only() -> None:
    for depth in (99, 100):
        body = b'{"a":' + b"[" * depth + b"]" * depth + b"}"
        assert read_unbounded(body) == (json.loads(body), False)
        if depth == 99:
            assert read(body) == (json.loads(body), False)
        else:
            with pytest.raises(InvalidRequestError, match="nested too deeply"):
                read(body)
