from __future__ import annotations

import pytest

from epd.collector.result import Cause, VolumeFacts
from epd.collector.watermark import Need, Ours, pressure
from unit.collector.tree import policy

A = frozenset({"a"})


def volume(used: int, *, inodes: int = 0) -> VolumeFacts:
    return VolumeFacts(capacity_bytes=1000, used_bytes=used, capacity_inodes=1000 if inodes else 0, used_inodes=inodes)


@pytest.mark.parametrize(
    ("used", "ours", "need"),
    [
        (850, 850, 0),  # 14: not above high
        (851, 851, 151),
        (1000, 1000, 300),
        (900, 400, 200),  # foreign data fits below low: down to low
        (900, 200, 125),  # foreign 700: half of the 150 up to high stays ours
    ],
)
def test_need_of_the_volume(used: int, ours: int, need: int) -> None:
    found = pressure(volume(used), Ours(used_bytes=ours, entries=0), {}, policy())

    expected = (Need(versions=None, cause=Cause.WATERMARK, need_bytes=need, need_entries=0),) if need else ()
    assert (found.needs, found.over, found.foreign_dominates) == (expected, bool(need), False)


def test_foreign_data_above_high_is_not_ours_to_free() -> None:
    found = pressure(volume(950), Ours(used_bytes=100, entries=0), {}, policy())

    assert (found.needs, found.over, found.foreign_dominates) == ((), True, True)


def test_trash_is_about_to_be_freed() -> None:
    found = pressure(volume(900), Ours(used_bytes=900, entries=9, trash_bytes=200, trash_entries=2), {}, policy())

    assert (found.needs, found.over) == ((), True)


def test_inodes_count_like_bytes() -> None:
    found = pressure(volume(100, inodes=900), Ours(used_bytes=100, entries=900), {}, policy())

    assert found.needs == (Need(versions=None, cause=Cause.WATERMARK, need_bytes=0, need_entries=200),)


def test_share_of_one_object_and_what_it_frees_of_the_volume() -> None:
    allowed = policy(max_sizes=((A, 500),))
    found = pressure(volume(900), Ours(used_bytes=900, entries=0), {"a": 450, "b": 450}, allowed)

    assert found.needs == (
        Need(versions=A, cause=Cause.MAX_SIZE, need_bytes=100, need_entries=0),
        Need(versions=None, cause=Cause.WATERMARK, need_bytes=100, need_entries=0),
    )
