"""Limits of what was measured: read from gates.toml, and checked.

Pure but for the reading. A gate whose figures are missing is not reached.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from results import Run, Spread, paired, short, spread, total

ANY: Final = "*"
"""As a scenario: all of them together, and the figure is a sum."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A limit of `measure` of stack `of`, or of its ratio to stack `over` within rounds; one of `most` and `least`."""

    name: str
    scenario: str
    measure: str
    of: str
    over: str = ""
    most: float | None = None
    least: float | None = None
    stretch: float
    quick: bool = False
    """Among the three that catch most regressions and need no peer from a registry."""
    calibrated: str
    """By what the limit was chosen, when, and where."""

    def reached(self, value: float, limit: float | None = None) -> bool:
        """Whether `value` keeps the limit, or another one given."""
        if self.most is not None:
            return value <= (self.most if limit is None else limit)
        assert self.least is not None
        return value >= (self.least if limit is None else limit)

    @property
    def wanted(self) -> str:
        limit, sign = (self.most, "<=") if self.most is not None else (self.least, ">=")
        assert limit is not None
        return f"{sign} {short(limit)} ({short(self.stretch)})"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of one gate. Without `found` it could not be measured, for the reason in `missing`."""

    gate: Gate
    found: Spread | None
    missing: str = ""

    @property
    def reached(self) -> bool:
        return self.found is not None and self.gate.reached(self.found.median)

    @property
    def word(self) -> str:
        if self.found is None:
            return "NOT MEASURED"
        if not self.reached:
            return "MISSED"
        stretched = self.gate.reached(self.found.median, self.gate.stretch)
        return "reached, stretch too" if stretched else "reached"


def read_gates(path: Path) -> list[Gate]:
    """Read the range file. Raises ValueError for a gate that makes no sense."""
    with path.open("rb") as file:
        return [_gate(entry) for entry in tomllib.load(file)["gate"]]


def _gate(entry: dict[str, Any]) -> Gate:
    try:
        gate = Gate(**entry)
    except TypeError as error:
        raise ValueError(f"{entry.get('name')}: {error}") from None
    if (gate.most is None) == (gate.least is None):
        raise ValueError(f"{gate.name}: give one of most and least")
    if not gate.reached(gate.stretch):
        raise ValueError(f"{gate.name}: the stretch is wider than the limit")
    return gate


def check(gates: Sequence[Gate], runs: Sequence[Run], absent: dict[str, str]) -> list[Verdict]:
    """Judge every gate; `absent` has the reasons why stacks are not there."""
    return [_check(gate, runs, absent) for gate in gates]


def _check(gate: Gate, runs: Sequence[Run], absent: dict[str, str]) -> Verdict:
    if gate.scenario == ANY:
        mine = any(run.stack == gate.of for run in runs)
        found = Spread((total(runs, gate.of, gate.measure),)) if mine else None
    elif gate.over:
        found = paired(runs, gate.scenario, gate.measure, of=gate.of, over=gate.over)
    else:
        found = spread(runs, gate.scenario, gate.of, gate.measure)
    if found is not None:
        return Verdict(gate=gate, found=found)
    reasons = [f"{stack}: {absent[stack]}" for stack in (gate.of, gate.over) if stack in absent]
    return Verdict(gate=gate, found=None, missing="; ".join(reasons) or "no figures")


def table(verdicts: Sequence[Verdict]) -> str:
    """Write all gates in markdown."""
    lines = ["| gate | wanted (stretch) | median [range] | |", "| --- | --- | --- | --- |"]
    for verdict in verdicts:
        found = str(verdict.found) if verdict.found else verdict.missing
        lines.append(f"| {verdict.gate.name} | {verdict.gate.wanted} | {found} | {verdict.word} |")
    return "\n".join(lines)
