from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epd.topology.canonical import canonical_json, digest

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(item) for key, item in reversed(value.items())}
    return [reordered(item) for item in value] if isinstance(value, list) else value


@given(JSON)
def test_the_order_of_keys_does_not_matter(value: Any) -> None:
    assert canonical_json(reordered(value)) == canonical_json(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1.0, "a": [1.5, True, None]}, '{"a":[1.5,true,null],"b":1}'),
        ({"ü": "日"}, '{"\\u00fc":"\\u65e5"}'),
        ((1, 2), "[1,2]"),
    ],
)
def test_one_spelling(value: Any, text: str) -> None:
    assert canonical_json(value) == text


def test_no_number_is_not_a_number() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(float("nan"))


def test_digest_is_a_prefix_of_sha256_over_the_json() -> None:
    assert digest({"a": 1}, length=12) == hashlib.sha256(b'{"a":1}').hexdigest()[:12]
