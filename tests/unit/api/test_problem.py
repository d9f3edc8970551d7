from __future__ import annotations

from epd.api.names import Reason
from epd.api.problem import Problem, invalid, owned, owned_name


def test_problems() -> None:
    assert owned("a", "b") == Problem(reason=Reason.OWNED_FIELD, path="a", message="b")
    assert invalid("a", "b") == Problem(reason=Reason.INVALID_SPEC, path="a", message="b")
    assert list(owned_name("a", "HOME", {"HOME": "is ours"})) == [owned("a", "HOME is ours")]
    assert list(owned_name("a", "HOMES", {"HOME": "is ours"})) == []
