"""Engines, collectors and everything that can go wrong, 10,000 times: what the collection protocol promises holds.

A failure names the seed; `EPD_SEED=n python -m histories.play` replays it. `make histories SEEDS=1000000` plays longer.
"""

from __future__ import annotations

import json
import os

import pytest

from histories.oracle import INVARIANTS
from histories.play import Summary, play_all, spawn
from histories.sites import call_sites

SEEDS = int(os.environ.get("EPD_SEEDS", "10000"))
JUDGED = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 19, 21, 22)
"""Invariants that histories judge; `test_stills.py` has the others, and 14, 18, 19 and 21 once more."""
MORE_SEEDS = 3000
"""Played at most to crash at a call that the others missed."""
HAPPENS = (
    "condemned",
    "renamed",
    "evicted",
    "pin reaped",
    "temporary removed",
    "renamed although it came back after the last question",
    "publish: written",
    "publish: already",
    "publish: full",
    "publish: in a version that had been removed",
    "fetch: hit",
    "miss: absent",
    "miss: stale",
    "miss: torn",
    "miss: checksum",
    "pinned",
    "example: saved",
    "example: loaded",
    "collector ended",
    "engine ended",
)
"""What must have happened, or the histories prove nothing."""


@pytest.fixture(scope="module")
def played() -> Summary:
    summary = play_all(0, SEEDS)
    print(f"{summary.seeds} seeds, {summary.seconds:.0f} s, {summary.seeds / summary.seconds:.0f} seeds/s")
    return summary


def test_no_history_violates_anything(played: Summary) -> None:
    assert played.seeds == SEEDS
    assert played.violations == []


@pytest.mark.parametrize("invariant", JUDGED, ids=lambda number: f"invariant {number}: {INVARIANTS[number]}")
def test_invariant(played: Summary, invariant: int) -> None:
    assert [violation for violation in played.violations if violation[1] == invariant] == []
    assert played.checks[str(invariant)] > 0


@pytest.mark.parametrize("event", HAPPENS)
def test_histories_contain(played: Summary, event: str) -> None:
    assert played.events[event] > 0


def test_every_call_of_the_file_system_was_a_crash_point(played: Summary) -> None:
    for site in sorted(call_sites() - played.crashed):  # those that few histories come to get histories of their own
        process = spawn(0, MORE_SEEDS, "--crash", ":".join(site))
        out, _ = process.communicate()
        more = Summary()
        more.add(json.loads(out))
        print(f"{site} crashed at by seed {more.seeds - 1}")
        assert site in more.crashed
        assert more.violations == []


def test_a_seed_is_one_history() -> None:
    first, again = play_all(17, 18), play_all(17, 18)
    assert (first.steps, first.events, first.checks) == (again.steps, again.events, again.checks)
