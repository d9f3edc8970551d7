"""Figures of runs, and what is made of them: medians, and medians of ratios within a round.

Pure. Knows no limits (`gates.py`).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Run:
    """One stack in one scenario in one round; `figures` are the loader's, times in ms, CPU in microseconds."""

    scenario: str
    stack: str
    round: int
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some figures, and their range. No figures at all are an error."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def __str__(self) -> str:
        return f"{short(self.median)} [{short(min(self.values))}..{short(max(self.values))}]"


def figures(runs: Iterable[Run], scenario: str, stack: str, measure: str) -> dict[int, float]:
    """Return a figure by round; rounds without it are left out."""
    return {
        run.round: run.figures[measure]
        for run in runs
        if run.scenario == scenario and run.stack == stack and measure in run.figures
    }


def spread(runs: Iterable[Run], scenario: str, stack: str, measure: str) -> Spread | None:
    """Summarise a figure; None if it was never measured."""
    values = tuple(figures(runs, scenario, stack, measure).values())
    return Spread(values) if values else None


def paired(runs: Sequence[Run], scenario: str, measure: str, *, of: str, over: str) -> Spread | None:
    """Summarise the ratios of two stacks, each within one round: what slows a round slows both."""
    above, below = (figures(runs, scenario, stack, measure) for stack in (of, over))
    values = tuple(above[each] / below[each] for each in sorted(above.keys() & below.keys()) if below[each] > 0)
    return Spread(values) if values else None


def total(runs: Iterable[Run], stack: str, measure: str) -> float:
    """Sum a figure over all runs of a stack."""
    return sum(run.figures.get(measure, 0) for run in runs if run.stack == stack)


COLUMNS = (
    ("rate", "requests/s"),
    ("cpu", "CPU us/request"),
    ("cpu_event", "CPU us/event"),
    ("p50", "p50 ms"),
    ("p99", "p99 ms"),
    ("delay50", "event p50 ms"),
    ("added50", "added p50 ms"),
    ("opened", "connections/request"),
    ("rewritten", "pictures spared the prefill side"),
    ("peak", "peak MB"),
)


def table(runs: Sequence[Run], scenario: str, stacks: Sequence[str], relay: str) -> str:
    """Write one scenario's medians as a table in markdown; columns that nobody has are left out."""
    here = [run for run in runs if run.scenario == scenario]
    columns = [column for column in COLUMNS if any(column[0] in run.figures for run in here)]
    lines = [
        "| stack | " + " | ".join(title for _, title in columns) + " | CPU over relay | errors |",
        "| --- |" + " ---: |" * (len(columns) + 2),
    ]
    for stack in stacks:
        found = [spread(here, scenario, stack, measure) for measure, _ in columns]
        if any(found):
            ratio = paired(here, scenario, "cpu", of=stack, over=relay)
            cells = [short(each.median) if each else "" for each in found]
            cells += [str(ratio) if ratio else "", short(total(here, stack, "errors"))]
            lines.append(f"| {stack} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def short(value: float) -> str:
    """Write three significant digits."""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"
