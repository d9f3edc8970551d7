from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epd.proxy.holes import Holes


@pytest.mark.parametrize("exact", [False, True])
@given(st.permutations(range(12)), st.text())
def test_holes_are_found_by_their_numbers_in_whatever_order_they_stand(
    exact: bool, order: list[int], text: str
) -> None:
    holes = Holes(exact=exact)
    document = {text: text, "a": [holes.hole(number) for number in order], "b": text}
    written = json.dumps(document).encode() if exact else orjson.dumps(document)
    pieces, numbers = holes.split(written)
    assert (len(pieces), numbers) == (13, order)
    filled = b"".join([pieces[0], *(b"%d%b" % pair for pair in zip(numbers, pieces[1:], strict=True))])
    assert json.loads(filled) == {text: text, "a": order, "b": text}


def test_a_document_is_joined_to_be_read_again() -> None:
    holes = Holes(exact=True)
    joined = holes.join([b"[", b",1,", b"]"])
    assert json.loads(joined) == [holes.hole(0), 1, holes.hole(1)]
    assert holes.split(joined) == ((b"[", b",1,", b"]"), [0, 1])


def test_documents_have_names_of_their_own() -> None:
    one, other = Holes(exact=True), Holes(exact=True)
    assert other.split(one.join([b"[", b"]"])) == ((one.join([b"[", b"]"]),), [])
