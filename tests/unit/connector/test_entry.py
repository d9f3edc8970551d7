from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epd.connector.entry import (
    HEADER_LIMIT,
    ITEM_BYTES,
    Expectation,
    Parsed,
    Reason,
    Rejected,
    Shape,
    check,
    checksum,
    header,
    parse,
    payload_offset,
)

VERSION = "v1-m-0123456789ab"
SHAPE = Shape(dtype="BF16", rows=3, width=4)
PAYLOAD = bytes(range(24))
ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=40)
SHAPES = st.builds(
    Shape, dtype=st.sampled_from(sorted(ITEM_BYTES)), rows=st.integers(1, 1 << 40), width=st.integers(1, 1 << 20)
)


def made(identifier: str = "a", version: str = VERSION, shape: Shape = SHAPE, payload: bytes = PAYLOAD) -> bytes:
    return header(identifier, version, shape, checksum(payload)) + payload


def expecting(**changes: Any) -> Expectation:
    return Expectation(**({"identifier": "a", "rows": 3, "width": 4, "dtype": "BF16"} | changes))


def used(data: bytes, expectation: Expectation, version: str = VERSION) -> bytes:
    """What a reader takes from an entry's bytes; raises Rejected."""
    parsed = parse(data[: HEADER_LIMIT + 8], len(data))
    check(parsed, expectation, version)
    payload = data[parsed.offset :]
    if checksum(payload) != parsed.checksum:
        raise Rejected(Reason.CHECKSUM)
    return payload


def with_header(content: Any, payload: bytes = PAYLOAD) -> bytes:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return len(text).to_bytes(8, "little") + text + payload


def changed(**parts: Any) -> dict[str, Any]:
    """The header's JSON with parts of `metadata` or `tensor` changed; None removes one."""
    data = made()
    content = json.loads(data[8 : payload_offset(data, len(data))])
    for part, key in (("metadata", "__metadata__"), ("tensor", "ec_cache")):
        content[key] |= parts.get(part, {})
        content[key] = {name: value for name, value in content[key].items() if value is not None}
    return content


def reason(data: bytes, expectation: Expectation | None = None, version: str = VERSION) -> Reason:
    with pytest.raises(Rejected) as rejected:
        used(data, expectation or expecting(), version)
    return rejected.value.reason


@given(identifier=ANY_TEXT, shape=SHAPES)
def test_a_header_says_what_was_put_in(identifier: str, shape: Shape) -> None:
    head = header(identifier, VERSION, shape, "c" * 64)
    parsed = parse(head, len(head) + shape.nbytes)
    check(parsed, Expectation(identifier=identifier, rows=shape.rows, width=shape.width, dtype=shape.dtype), VERSION)
    assert (parsed.shape, parsed.checksum, parsed.offset, parsed.version) == (shape, "c" * 64, len(head), VERSION)


@given(identifier=ANY_TEXT)
def test_a_header_is_what_safetensors_reads(identifier: str) -> None:
    """By the format's description: length, an object without spaces before it, offsets without gaps, valid UTF-8."""
    data = made(identifier)
    length = int.from_bytes(data[:8], "little")
    text = data[8 : 8 + length]
    content = json.loads(text.decode("utf-8"))
    assert text.startswith(b"{")
    assert len(data) == 8 + length + len(PAYLOAD)
    assert (8 + length) % 64 == 0
    assert content["ec_cache"] == {"dtype": "BF16", "shape": [3, 4], "data_offsets": [0, 24]}
    for value in content["__metadata__"].values():
        value.encode("utf-8")  # a lone surrogate would not encode


@given(cut=st.integers(0, len(made()) - 1))
def test_an_entry_cut_anywhere_is_not_used(cut: int) -> None:
    assert reason(made()[:cut]) == (Reason.EMPTY if cut == 0 else Reason.TORN)


@given(at=st.integers(0, len(made()) - 1), mask=st.integers(1, 255))
def test_an_entry_with_a_changed_byte_is_not_used_or_carries_the_same_payload(at: int, mask: int) -> None:
    data = bytearray(made())
    data[at] ^= mask
    with suppress(Rejected):
        assert used(bytes(data), expecting(width=None, dtype=None)) == PAYLOAD


@given(junk=st.binary(max_size=200))
def test_junk_is_not_used(junk: bytes) -> None:
    with pytest.raises(Rejected):
        used(junk, expecting())


@given(noise=st.binary(min_size=1, max_size=64))
def test_an_entry_with_more_behind_it_is_not_used(noise: bytes) -> None:
    assert reason(made() + noise) == Reason.TRAILING


@pytest.mark.parametrize(
    ("expectation", "expected"),
    [
        (expecting(identifier="b"), Reason.IDENTIFIER),
        (expecting(rows=2), Reason.ROWS),
        (expecting(rows=4), Reason.ROWS),
        (expecting(width=5), Reason.WIDTH),
        (expecting(dtype="F16"), Reason.DTYPE),
    ],
)
def test_an_entry_that_is_not_the_expected_one(expectation: Expectation, expected: Reason) -> None:
    assert reason(made(), expectation) == expected


def test_an_entry_of_another_version_of_the_model() -> None:
    assert reason(made(), version="v1-m-ba9876543210") == Reason.VERSION


def test_what_the_consumer_does_not_know_is_not_checked() -> None:
    assert used(made(), expecting(width=None, dtype=None)) == PAYLOAD


def test_a_changed_payload() -> None:
    assert reason(made()[:-1] + b"\0") == Reason.CHECKSUM


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", Reason.EMPTY),
        (b"\0" * 7, Reason.TORN),
        (b"\0" * 4096, Reason.HEADER),
        ((HEADER_LIMIT + 1).to_bytes(8, "little") + b"{}", Reason.HEADER),
        (b"\xff" * 4096, Reason.HEADER),
        (with_header(b"{" * 100), Reason.HEADER),
        (with_header(b"[" * 100_000), Reason.HEADER),
        (with_header(b'{"a":' + b"9" * 10_000 + b"}"), Reason.HEADER),
        (with_header(b"\xff\xfe"), Reason.HEADER),
        (with_header([]), Reason.HEADER),
        (with_header({}), Reason.FORMAT),
        (with_header({"ec_cache": {"dtype": "BF16", "shape": [3, 4], "data_offsets": [0, 24]}}), Reason.FORMAT),
        (with_header(changed(metadata={"format": "2"})), Reason.FORMAT),
        (with_header(changed(metadata={"format": 1})), Reason.FORMAT),
        (with_header(changed(metadata={"blake3": None})), Reason.HEADER),
        (with_header(changed(metadata={"identifier": 1})), Reason.HEADER),
        (with_header(changed(metadata={"version": None})), Reason.HEADER),
        (with_header(changed() | {"other": {}}), Reason.HEADER),
        (with_header(changed() | {"ec_cache": []}), Reason.HEADER),
        (with_header(changed(tensor={"dtype": "I64"})), Reason.DTYPE),
        (with_header(changed(tensor={"dtype": None})), Reason.DTYPE),
        (with_header(changed(tensor={"dtype": ["BF16"]})), Reason.DTYPE),
        (with_header(changed(tensor={"shape": [12]})), Reason.HEADER),
        (with_header(changed(tensor={"shape": [3, 4, 1]})), Reason.HEADER),
        (with_header(changed(tensor={"shape": [-3, -4]})), Reason.HEADER),
        (with_header(changed(tensor={"shape": [0, 4], "data_offsets": [0, 0]}), b""), Reason.HEADER),
        (with_header(changed(tensor={"shape": [True, 12]})), Reason.HEADER),
        (with_header(changed(tensor={"shape": "34"})), Reason.HEADER),
        (with_header(changed(tensor={"data_offsets": [8, 32]})), Reason.HEADER),
        (with_header(changed(tensor={"shape": [1 << 60, 1 << 60]})), Reason.HEADER),
    ],
)
def test_bad_entries_each_have_their_reason(data: bytes, expected: Reason) -> None:
    assert reason(data) == expected


@pytest.mark.parametrize(
    ("identifier", "shape", "expected"),
    [
        ("x" * (HEADER_LIMIT + 1), SHAPE, Reason.TOO_LARGE),
        ("a", Shape(dtype="I8", rows=1, width=1), Reason.DTYPE),
        ("a", Shape(dtype="BF16", rows=0, width=1), Reason.ROWS),
        ("a", Shape(dtype="BF16", rows=1, width=0), Reason.WIDTH),
    ],
)
def test_no_header_is_made_that_a_reader_would_refuse(identifier: str, shape: Shape, expected: Reason) -> None:
    with pytest.raises(Rejected) as rejected:
        header(identifier, VERSION, shape, "")
    assert rejected.value.reason == expected


def test_a_header_longer_than_what_was_read_of_it() -> None:
    data = made()
    with pytest.raises(Rejected) as rejected:
        parse(data[:100], len(data))
    assert rejected.value.reason == Reason.TORN


def test_parsed_headers_compare_by_value() -> None:
    data = made()
    assert parse(data, len(data)) == Parsed(
        identifier="a", version=VERSION, shape=SHAPE, checksum=checksum(PAYLOAD), offset=len(data) - len(PAYLOAD)
    )
