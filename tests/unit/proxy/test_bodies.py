from __future__ import annotations

from pathlib import Path

import pytest

from epd.proxy.bodies import Bodies, room_for_bodies
from epd.proxy.errors import OverloadedError


def test_bodies_share_the_room_and_give_it_back() -> None:
    bodies = Bodies(room=10)
    first, second, third = bodies.share(), bodies.share(), bodies.share()
    first.grow(6)
    second.grow(3)
    second.grow(4)
    with pytest.raises(OverloadedError):
        second.grow(5)
    with pytest.raises(OverloadedError):
        third.grow(1)
    assert (bodies.taken, second.size, third.size) == (10, 4, 0)
    second.release()
    first.grow(8)
    assert bodies.taken == 8
    first.release()
    assert bodies.taken == 0


def test_what_is_only_checked_takes_nothing() -> None:
    bodies = Bodies(room=10)
    first, second = bodies.share(), bodies.share()
    first.grow(4)
    second.check(6)
    with pytest.raises(OverloadedError):
        second.check(7)
    assert (bodies.taken, second.size) == (4, 0)


def test_a_share_is_given_back_once() -> None:
    bodies = Bodies(room=None)
    first, second = bodies.share(), bodies.share()
    first.grow(3)
    second.grow(4)
    first.release()
    first.release()
    assert (bodies.taken, first.size) == (4, 0)


def test_a_lone_body_always_fits() -> None:
    bodies = Bodies(room=10)
    lone = bodies.share()
    lone.grow(5)
    lone.grow(11)
    assert bodies.taken == 11


def test_without_a_memory_limit_there_is_room_for_all() -> None:
    bodies = Bodies(room=None)
    bodies.share().grow(1 << 40)
    bodies.share().grow(1 << 40)
    assert bodies.taken == 2 << 40


@pytest.mark.parametrize(("text", "room"), [("4000\n", 1000), ("max\n", None)])
def test_the_room_is_a_part_of_the_containers_memory(tmp_path: Path, text: str, room: int | None) -> None:
    (tmp_path / "memory.max").write_text(text)
    assert room_for_bodies(tmp_path / "memory.max") == room


def test_outside_of_containers_there_is_no_bound(tmp_path: Path) -> None:
    assert room_for_bodies(tmp_path / "memory.max") is None
