"""Breadth-first search through all states of a model, with the shortest way to what must not happen."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)


class Counterexample(Exception):  # noqa: N818 - a result, and no error of the search
    """A property that does not hold, with the steps that lead there."""

    def __init__(self, says: str, steps: list[str]) -> None:
        super().__init__("\n  ".join([says, *steps]))
        self.says = says
        self.steps = steps


@dataclass(frozen=True)
class Explored(Generic[S]):
    """All states with the number of steps to each; `transitions` counts the ways between them."""

    depths: dict[S, int]
    transitions: int

    @property
    def longest(self) -> int:
        """Steps to the state that is farthest from a start."""
        return max(self.depths.values())


def explore(
    starts: Iterable[S],
    transitions: Callable[[S], Iterator[tuple[str, S]]],
    *,
    canonical: Callable[[S], S],
    violation: type[Exception],
) -> Explored[S]:
    """Visit every state once; states of equal `canonical` form are one. Raises Counterexample at a `violation`."""
    parents: dict[S, S | None] = {canonical(start): None for start in starts}
    depths = dict.fromkeys(parents, 0)
    layer, count = list(parents), 0
    while layer:
        following = []
        for state in layer:
            try:
                for _, successor in transitions(state):
                    count += 1
                    found = canonical(successor)
                    if found not in parents:
                        parents[found] = state
                        following.append(found)
            except violation as broken:
                way = _way(state, parents)
                raise Counterexample(str(broken), _replay(way, transitions, canonical)) from None
        depth = depths[layer[0]] + 1
        depths.update(dict.fromkeys(following, depth))
        layer = following
    return Explored(depths, count)


def _way(state: S, parents: dict[S, S | None]) -> list[S]:
    way = [state]
    while (before := parents[way[-1]]) is not None:
        way.append(before)
    return way[::-1]


def _replay(
    way: list[S], transitions: Callable[[S], Iterator[tuple[str, S]]], canonical: Callable[[S], S]
) -> list[str]:
    """Walk the way anew without canonical forms, so that each process keeps its name."""
    state, steps = way[0], []
    for target in way[1:]:
        says, state = next((says, found) for says, found in transitions(state) if canonical(found) == target)
        steps.append(says)
    return steps


def reaching(
    states: Iterable[S], goal: Callable[[S], bool], transitions: Callable[[S], Iterable[S]]
) -> tuple[set[S], set[S]]:
    """Return all of `states`, closed under `transitions`, and those of them from which the goal can be reached."""
    before: dict[S, list[S]] = {}
    everything, stack = set(states), list(states)
    while stack:
        state = stack.pop()
        for successor in transitions(state):
            before.setdefault(successor, []).append(state)
            if successor not in everything:
                everything.add(successor)
                stack.append(successor)
    reached = {state for state in everything if goal(state)}
    stack = list(reached)
    while stack:
        for state in before.get(stack.pop(), ()):
            if state not in reached:
                reached.add(state)
                stack.append(state)
    return everything, reached
