"""Each defect put into the source is found by the histories: what they pass says something."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from histories.mutations import MUTATIONS, Mutation
from histories.play import PROCESSES, Summary, spawn

SEEDS = 4000
"""Played at most for each; most are found within a hundred."""


def hunt(number: int) -> Summary:
    process = spawn(0, SEEDS, "--mutate", str(number))
    out, _ = process.communicate()
    assert process.returncode in (0, 1), f"mutation {number} ended with {process.returncode}"
    summary = Summary()
    summary.add(json.loads(out))
    return summary


@pytest.fixture(scope="module")
def hunted() -> dict[int, Summary]:
    with ThreadPoolExecutor(PROCESSES) as pool:
        found = dict(enumerate(pool.map(hunt, range(len(MUTATIONS)))))
    for number, summary in found.items():
        shown = sorted({invariant for _, invariant, _ in summary.violations})
        print(f"{MUTATIONS[number].defect:<75} found by seed {summary.seeds - 1:>4}, invariants {shown}")
    return found


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.defect)
def test_a_mutation_still_applies(mutation: Mutation) -> None:
    with open(mutation.path, encoding="utf-8") as file:
        assert mutation.apply(file.read())


@pytest.mark.parametrize("number", range(len(MUTATIONS)), ids=lambda number: MUTATIONS[number].defect)
def test_a_mutation_is_caught(hunted: dict[int, Summary], number: int) -> None:
    shown = {invariant for _, invariant, _ in hunted[number].violations}
    assert shown & MUTATIONS[number].shows, hunted[number].violations or f"not found in {SEEDS} seeds"
