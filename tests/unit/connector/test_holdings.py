from __future__ import annotations

import pytest

from epd.connector.holdings import QUEUED, Holdings, Load
from epd.connector.local import Copy

KEY = ("red", 4)
LOAD = Load("red", "/copy", 0, 4, 8, "BF16", None)


def _copy(path: str = "/copy") -> Copy:
    return Copy(path, memoryview(bytearray(64)), 64)


def _holdings() -> tuple[Holdings, list[str]]:
    back: list[str] = []
    return Holdings(lambda source: back.append(source.path)), back


def test_a_copy_goes_with_its_last_holder():
    holdings, back = _holdings()
    holdings.add(KEY, LOAD, _copy(), {"a", "b"})
    holdings.drop(KEY, "a")
    assert (back, len(holdings), holdings.load(KEY)) == ([], 1, LOAD)
    holdings.drop(KEY, "b")
    assert (back, len(holdings), KEY in holdings) == (["/copy"], 0, False)


def test_a_step_outlives_the_request_that_it_loads_for():
    holdings, back = _holdings()
    holdings.add(KEY, LOAD, _copy(), {"a"})
    holdings.hold(KEY, QUEUED)
    holdings.drop(KEY, "a")
    holdings.hold(KEY, 7)
    holdings.drop(KEY, QUEUED)
    assert back == []
    holdings.drop(KEY, 7)
    assert back == ["/copy"]


def test_what_nobody_waits_for_goes_back_at_once():
    holdings, back = _holdings()
    holdings.add(KEY, LOAD, _copy(), set())
    assert (back, len(holdings)) == (["/copy"], 0)


def test_a_second_copy_of_what_is_held_goes_back_and_its_holders_join():
    holdings, back = _holdings()
    holdings.add(KEY, LOAD, _copy("/1"), {"a"})
    holdings.add(KEY, LOAD, _copy("/2"), {"b"})
    holdings.drop(KEY, "a")
    assert back == ["/2"]
    holdings.drop(KEY, "b")
    assert back == ["/2", "/1"]


def test_what_is_not_held_cannot_be_held():
    holdings, back = _holdings()
    assert holdings.hold(KEY, "a") is False
    holdings.drop(KEY, "a")
    with pytest.raises(KeyError):
        holdings.load(KEY)
    assert back == []


def test_in_the_end_everything_goes_back_once():
    holdings, back = _holdings()
    holdings.add(KEY, LOAD, _copy(), {"a", 3})
    holdings.clear()
    holdings.clear()
    assert back == ["/copy"]
