from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epd.api.names import Role
from epd.proxy.pods import Member
from epd.proxy.routing import LOAD_FACTOR, InFlight, choose_encoder, choose_prefill

NAMES = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=12, unique=True)
KEYS = st.lists(st.text(max_size=8), min_size=1, max_size=60)


def member(name: str, pairing: str = "p", role: Role = Role.PREFILL_DECODE) -> Member:
    return Member(name=name, role=role, pairing=pairing, address="http://10.0.0.1:8000", ready=True)


def encoders(names: list[str]) -> list[Member]:
    return [member(name, role=Role.ENCODE) for name in names]


@given(NAMES, KEYS)
def test_an_item_stays_where_it_was_when_another_encoder_goes(names: list[str], keys: list[str]) -> None:
    idle = InFlight()
    before = {key: choose_encoder(key, encoders(names), idle).name for key in keys}
    for gone in names[:3]:
        rest = [name for name in names if name != gone]
        if rest:
            after = {key: choose_encoder(key, encoders(rest), idle).name for key in keys}
            assert {k: v for k, v in after.items() if before[k] != gone} == {
                k: v for k, v in before.items() if v != gone
            }


@given(NAMES, st.text())
def test_the_order_of_encoders_does_not_matter(names: list[str], key: str) -> None:
    idle = InFlight()
    assert choose_encoder(key, encoders(names), idle) == choose_encoder(key, encoders(names)[::-1], idle)


@given(NAMES, KEYS)
def test_no_encoder_gets_more_than_its_share(names: list[str], keys: list[str]) -> None:
    load = InFlight()
    for placed, key in enumerate(keys):
        load.begin(choose_encoder(key, encoders(names), load).name)
        assert max(load.counts().values()) <= math.ceil(LOAD_FACTOR * (placed + 1) / len(names))


def test_one_hot_item_spreads_only_as_far_as_it_must() -> None:
    load, names = InFlight(), ["a", "b", "c", "d"]
    chosen = [choose_encoder("hot", encoders(names), load).name for _ in range(3)]
    assert len(set(chosen)) == 1
    load.begin(chosen[0], 10)
    assert choose_encoder("hot", encoders(names), load).name != chosen[0]


def test_keys_spread_evenly() -> None:
    counts = InFlight()
    for number in range(4000):
        counts.begin(choose_encoder(f"key{number}", encoders(["a", "b", "c", "d"]), InFlight()).name)
    assert all(900 < count < 1100 for count in counts.counts().values())


@given(NAMES, st.text(), st.lists(st.integers(0, 9), min_size=12, max_size=12))
def test_the_prefill_side_with_the_least_in_flight(names: list[str], key: str, loads: list[int]) -> None:
    load = InFlight()
    for name, amount in zip(names, loads, strict=False):
        load.begin(name, amount)
    chosen = choose_prefill(key, [member(name) for name in names], load)
    assert chosen is not None
    assert load[chosen.name] == min(load[name] for name in names)


def test_idle_engines_are_used_evenly() -> None:
    counts, members = InFlight(), [member("a"), member("b")]
    for number in range(1000):
        chosen = choose_prefill(f"r{number}", members, InFlight())
        assert chosen is not None
        counts.begin(chosen.name)
    assert all(400 < count < 600 for count in counts.counts().values())


PAIRED = [member("old0", "old"), member("old1", "old"), member("new0", "new")]


@pytest.mark.parametrize(
    ("busy", "encoder_pairings", "excluded", "expected"),
    [
        ({}, {"new"}, "", {"new0"}),
        ({"new0": 9}, {"new"}, "", {"new0"}),  # busy, but the only one with an encoder
        ({}, {"new", "old"}, "", {"old0", "old1"}),  # equal load: the larger pairing
        ({"old0": 1, "old1": 1}, {"new", "old"}, "", {"new0"}),
        ({}, set(), "", {"old0", "old1"}),
        ({}, None, "", {"old0", "old1"}),
        ({}, {"new"}, "new0", {"old0", "old1"}),
    ],
)
def test_pairings_with_an_encoder_come_first(
    busy: dict[str, int], encoder_pairings: set[str] | None, excluded: str, expected: set[str]
) -> None:
    load = InFlight()
    for name, amount in busy.items():
        load.begin(name, amount)
    chosen = {
        choice.name if (choice := _choose(f"r{n}", load, encoder_pairings, excluded)) else None for n in range(20)
    }
    assert chosen == expected


def _choose(key: str, load: InFlight, encoder_pairings: set[str] | None, excluded: str) -> Member | None:
    return choose_prefill(key, PAIRED, load, excluded={excluded}, encoder_pairings=encoder_pairings)


def test_nobody_is_left() -> None:
    assert choose_prefill("r", [], InFlight()) is None
    assert choose_prefill("r", [member("a")], InFlight(), excluded={"a"}) is None


def test_counts_return_to_nothing() -> None:
    load = InFlight()
    load.begin("a", 2)
    load.end("a")
    assert (load["a"], load.counts()) == (1, {"a": 1})
    load.end("a")
    assert (load["a"], load.counts()) == (0, {})


def test_a_lesser_share_of_requests() -> None:
    load, members = InFlight(), [member("old"), member("new")]
    for _ in range(55):
        chosen = choose_prefill("r", members, load, shares={"new": 0.1})
        assert chosen is not None
        load.begin(chosen.name)
    assert load.counts() == {"old": 50, "new": 5}


def test_a_lesser_share_of_items() -> None:
    members, load = encoders(["old", "new", "newer"]), InFlight()
    shares = {"new": 0.5, "newer": 0.1}
    for placed in range(200):
        load.begin(choose_encoder(f"key{placed}", members, load, shares=shares).name)
        bound = math.ceil(LOAD_FACTOR * (placed + 1) / 1.6)
        assert all(load[name] <= math.ceil(bound * shares.get(name, 1)) for name in ("old", "new", "newer"))
    counts = load.counts()
    assert counts["newer"] < counts["new"] < counts["old"]


def test_counting_elsewhere_at_once_is_not_told() -> None:
    load, told = InFlight(), []
    load.on_end = lambda: told.append(load.counts())
    load.begin("a", 2)
    load.withdraw("a")
    assert (told, load["a"]) == ([], 1)
    load.end("a")
    assert told == [{}]


def test_what_was_begun_is_known_of_members_that_are_there() -> None:
    load = InFlight()
    load.begin("e0", 3)
    load.end("e0", 3)
    load.begin("e0")
    load.begin("gone")
    assert load.begun(["e0", "e1"]) == {"e0": 4, "e1": 0}
    load.begin("e0")
    assert load.begun(["e0", "gone"]) == {"e0": 5, "gone": 0}


def test_a_place_that_was_kept_is_no_work_that_was_begun() -> None:
    load, told = InFlight(), []
    load.on_end = lambda: told.append(load.counts())
    load.begin("kept")
    load.withdraw("kept")
    load.begin("kept")
    load.begin("vain")
    load.give_up("vain")
    assert (load.counts(), told) == ({"kept": 1}, [{"kept": 1}])
    load.begin("gone")
    assert load.begun(["kept", "vain"]) == {"kept": 1, "vain": 0}
    load.give_up("gone")
    assert load.begun(["gone"]) == {"gone": 0}
