"""Every interleaving of the collection protocol, small: what must never happen does not, and what must happen does.

That the search would notice is shown by taking one care away at a time. Prints the size of what was searched (`-s`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from model.collection import Model
from model.search import Counterexample, Explored, explore, reaching
from model.state import NONE, STARTS, At, Collector, Pin, Rules, State, Violation

AT_REST = Collector()
MODEL = Model(Rules())


def search(rules: Rules, *, collectors: int) -> Explored[State]:
    model = Model(rules, collectors=collectors)
    return explore(STARTS, model.transitions, canonical=model.canonical, violation=Violation)


@pytest.fixture(scope="module")
def explored() -> Explored[State]:
    """All states of two collectors; that none of them breaks a property is what finding them has shown."""
    found = search(Rules(), collectors=2)
    print(f"\n{len(found.depths)} states, {found.transitions} transitions, longest way {found.longest} steps")
    return found


def test_no_property_breaks_in_any_interleaving(explored: Explored[State]) -> None:
    # far fewer would say that the model is stuck somewhere
    assert len(explored.depths) > 100_000
    assert {s.a.at for s in explored.depths} | {s.b.at for s in explored.depths} >= set(range(At.EMPTY_TRASH + 1))
    assert {s.pin for s in explored.depths} == {Pin.NONE, Pin.HELD, Pin.LEFT, Pin.DUE}


# each care is needed

CARES: dict[str, tuple[str, int]] = {
    # what is not taken care of: the property that breaks, and with how many collectors it first does
    "record_needed": ("what has no record is not removed", 1),
    "grace": ("what was condemned within the grace before the last question is not removed", 1),
    "asks_again": ("what is named since before the last question is not removed", 1),
    "failed_answers_prove_nothing": ("what is named since before the last question is not removed", 1),
    "looks_at_the_mark_again": ("what was condemned within the grace before the last question is not removed", 2),
    "spares_used_entries": ("what was used within the grace before it was looked at is not removed", 1),
    "sees_pins_before_it_asks": ("what a living reader pinned stays", 1),
    "reader_takes_absence_for_a_miss": ("a reader gets the whole content or a miss", 1),
    "writer_retries": ("a writer ends in an entry or a counted failure", 1),
    "writer_renames": ("a reader gets the whole content or a miss", 1),
}


@pytest.mark.parametrize(("care", "says", "collectors"), [(care, *found) for care, found in CARES.items()])
def test_without_a_care_a_property_breaks(care: str, says: str, collectors: int) -> None:
    rules = Rules(**{care: False})
    for fewer in range(1, collectors):
        search(rules, collectors=fewer)
    with pytest.raises(Counterexample) as found:
        search(rules, collectors=collectors)
    assert found.value.says == says, found.value


LIMITS: dict[str, tuple[str, str, str, list[str]]] = {
    # what may be missed: the property that it breaks; between which steps what happens
    "may_miss_a_handover": (
        "what lives without interruption since before the last question is not removed",
        "a: lists EPDDeployments again",
        "a: lists pods again: it is dead",
        ["the EPDDeployment comes", "the pod goes"],
    ),
    "may_miss_a_visit": (
        "what was used within the grace before it was looked at is not removed",
        "a: finds no used entry",
        "a: lists EPDDeployments again",
        ["writer: publishes", "the pod goes"],
    ),
}


@pytest.mark.parametrize(("limit", "found"), LIMITS.items(), ids=LIMITS.keys())
def test_two_ways_are_left_to_remove_what_was_in_use(limit: str, found: tuple[str, str, str, list[str]]) -> None:
    """In both it comes or goes between two questions of one removal; its engines make anew what they miss."""
    says, first, last, between = found
    with pytest.raises(Counterexample) as way:
        search(Rules(**{limit: False}), collectors=1)
    assert way.value.says == says
    steps = way.value.steps
    assert steps[steps.index(first) + 1 : steps.index(last)] == between


# what must happen, happens


def passed(model: Model, s: State) -> State:
    """One pass of collector `a`, from rest to rest, while nothing else happens."""
    assert s.a == AT_REST
    while True:
        [(_, s)] = model.step(s, "a")
        if s.a == AT_REST:
            return s


def later(s: State) -> State:
    """The grace passes."""
    return next((after for _, after in MODEL.time(s)), s)


def disks(explored: Explored[State]) -> set[State]:
    """What a collector may find that starts anew, whatever others were doing."""
    return {s._replace(a=AT_REST, b=AT_REST) for s in explored.depths}


def lives(s: State) -> bool:
    return bool(s.epd or s.pod)


def is_clean(s: State) -> bool:
    """Nothing is left of a version but its record."""
    return not (s.directory or s.mark or s.trash or s.pin)


def unmarked_after_a_pass(model: Model, explored: Explored[State]) -> bool:
    return all(passed(model, s).mark == NONE for s in disks(explored) if lives(s))


def test_a_mark_outlives_the_return_of_its_version_by_one_pass_at_most(explored: Explored[State]) -> None:
    assert any(s.mark for s in disks(explored) if lives(s))
    assert unmarked_after_a_pass(MODEL, explored)
    careless = Rules(unmarks_what_lives=False)
    assert not unmarked_after_a_pass(Model(careless, collectors=1), search(careless, collectors=1))


def test_what_lives_keeps_its_directory_through_a_pass(explored: Explored[State]) -> None:
    for s in filter(lives, disks(explored)):
        after = passed(MODEL, s)
        assert after == s._replace(mark=NONE, trash=0, pin=Pin.NONE if s.pin == Pin.DUE else s.pin)


def test_a_dead_version_is_gone_after_the_grace_and_two_passes(explored: Explored[State]) -> None:
    dead = [s for s in disks(explored) if not lives(s)]
    assert len(dead) > 20
    for s in dead:
        after = passed(MODEL, later(passed(MODEL, s)))
        if s.record:
            assert is_clean(after), s
        else:
            # a stranger's, if there is one
            assert after == later(s)._replace(pin=after.pin)


def alone(name: str, s: State) -> Iterator[State]:
    """One collector goes on and time passes; the other one hangs wherever it is."""
    yield from (after for _, after in MODEL.step(s, name))
    yield from (after for _, after in MODEL.time(s))


def ended(s: State) -> bool:
    return is_clean(s) if s.record else not (s.mark or s.trash)


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_collector_that_hangs_between_two_calls_keeps_the_other_from_nothing(
    explored: Explored[State], name: str
) -> None:
    dead = [s for s in explored.depths if not lives(s)]
    everything, reached = reaching(dead, ended, partial(alone, name))
    assert len(everything) >= len(dead) > 1000
    assert everything == reached


def settled(explored: Explored[State]) -> set[State]:
    """The names on disk when no collector finds anything to do, not even after the grace; by who is there."""
    idle = [s for s in disks(explored) if passed(MODEL, later(s)) == later(s)]
    return {s._replace(writer=0, attempt=0, reader=0) for s in idle}


def test_two_collectors_leave_behind_what_one_does(explored: Explored[State]) -> None:
    one, two = settled(search(Rules(), collectors=1)), settled(explored)
    assert len(two) > 20
    assert one == two
