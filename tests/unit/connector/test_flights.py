from __future__ import annotations

from typing import Any

import pytest

from epd.connector.flights import Flights
from epd.connector.holdings import Holdings, Key, Load
from epd.connector.local import Copy

ONE: Key = ("one", 2)
TWO: Key = ("two", 2)


def load(key: Key) -> Load:
    return Load(key[0], f"/shared/{key[0]}", 0, key[1], 4, "BF16", None)


@pytest.fixture
def freed() -> list[str]:
    return []


@pytest.fixture
def holdings(freed: list[str]) -> Holdings:
    def give_back(source: Any) -> None:
        freed.append(source.path)

    made = Holdings(give_back)
    for key in (ONE, TWO):
        made.add(key, load(key), Copy(key[0], memoryview(b""), 0), {"request"})
    return made


def let_go(holdings: Holdings) -> None:
    for key in (ONE, TWO):
        holdings.drop(key, "request")


def test_what_is_queued_is_held_until_the_step_that_carries_it_is_accounted(holdings, freed):
    flights = Flights(holdings)
    flights.queue(ONE)
    let_go(holdings)
    assert freed == ["two"]
    assert flights.plan(carrying=False) == (1, ())
    assert flights.plan(carrying=True) == (2, (load(ONE),))
    assert flights.plan(carrying=True) == (3, ())
    flights.account()
    assert freed == ["two"]
    flights.account()
    assert freed == ["two", "one"]


def test_a_step_that_is_known_to_have_run_lands_all_before_it_and_none_after(holdings, freed):
    flights = Flights(holdings)
    for key in (ONE, TWO):
        flights.queue(key)
        flights.plan(carrying=True)
    let_go(holdings)
    flights.account(1)
    assert freed == ["one"]
    flights.account(1)
    assert freed == ["one"]
    flights.account(2)
    assert freed == ["one", "two"]


def test_an_item_queued_twice_for_a_step_is_loaded_once(holdings, freed):
    flights = Flights(holdings)
    flights.queue(ONE)
    flights.queue(ONE)
    let_go(holdings)
    assert flights.plan(carrying=True) == (1, (load(ONE),))
    flights.account()
    assert freed == ["two", "one"]


def test_an_item_carried_by_two_steps_is_held_for_the_later(holdings, freed):
    flights = Flights(holdings)
    for _ in range(2):
        flights.queue(ONE)
        flights.plan(carrying=True)
    let_go(holdings)
    flights.account()
    assert freed == ["two"]
    flights.account()
    assert freed == ["two", "one"]


def test_a_number_that_was_never_planned_lands_no_later_step(holdings, freed):
    flights = Flights(holdings)
    flights.queue(ONE)
    flights.plan(carrying=True)
    flights.account(99)
    flights.queue(TWO)
    flights.plan(carrying=True)
    let_go(holdings)
    assert freed == ["one"]


def test_what_is_not_held_cannot_be_queued(holdings):
    with pytest.raises(KeyError):
        Flights(holdings).queue(("other", 2))
