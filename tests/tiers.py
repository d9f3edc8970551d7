"""Runs the test tiers, fastest first; says how long each took against its budget, and what was skipped and why.

    python tests/tiers.py                 every tier that this machine allows
    python tests/tiers.py lint unit       these tiers
    EPD_NO_SKIP=1 python tests/tiers.py   a skipped test is a failure (CI)

Knows nothing of what the tests do. Exit status: 0 when nothing failed, else 1.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".cache"
BIN = Path(sys.executable).parent


@dataclass(frozen=True, kw_only=True)
class Tier:
    """One level of the tests: `commands` are checks, `paths` and `marker` select pytest's tests."""

    name: str
    says: str
    budget: int
    """Seconds it may take on 2 cores with warm caches; printed, not enforced: timed tests flake."""
    prepare: tuple[str, ...] = ()
    """What the harness (`python -m cluster VERB`) makes first; a verb waits for another run that is at it."""
    commands: tuple[tuple[str, ...], ...] = ()
    runner: tuple[str, ...] = (sys.executable, "-m", "pytest")
    paths: tuple[str, ...] = ()
    marker: str = ""


TIERS = (
    Tier(
        name="lint",
        says="style, types, import layers, generated files",
        budget=120,
        commands=(
            (f"{BIN}/ruff", "check"),
            (f"{BIN}/ruff", "format", "--check"),
            (f"{BIN}/mypy", "operator"),
            (f"{BIN}/lint-imports", "--no-cache"),
            (sys.executable, "-m", "epd.api.crd", "--check"),
        ),
    ),
    Tier(
        name="unit",
        says="pure functions, golden manifests, properties",
        budget=120,
        paths=("tests/unit", "tests/golden"),
    ),
    Tier(name="protocol", says="the proxy over loopback sockets", budget=120, paths=("tests/protocol",)),
    Tier(
        name="browser",
        says="the topology page in Chromium",
        budget=60,
        prepare=("browser",),
        paths=("tests/browser",),
    ),
    Tier(
        name="compiled",
        says="the proxy's tests once more, with its modules compiled as in the image",
        budget=180,
        prepare=("compiled",),
        runner=(sys.executable, "-m", "cluster.compiled"),
        paths=("tests/unit/proxy", "tests/protocol"),
        marker="not interpreted",
    ),
    Tier(
        name="engine",
        says="the connector in vLLM's real scheduler and engine core",
        budget=180,
        prepare=("engine",),
        runner=(sys.executable, "-m", "engine"),
        paths=("tests/engine",),
    ),
    Tier(
        name="simulation",
        says="the reconciler on a simulated cluster with faults",
        budget=180,
        paths=("tests/simulation",),
    ),
    Tier(
        name="histories",
        says="the store's code under interleavings, crashes and hostile trees",
        budget=900,
        paths=("tests/histories", "tests/model", "tests/fuzz"),
    ),
    Tier(
        name="chart",
        says="helm lint, template matrix, RBAC",
        budget=120,
        paths=("tests/chart",),
        marker="not apiserver",
    ),
    Tier(
        name="apiserver",
        says="a real kube-apiserver and etcd",
        budget=600,
        prepare=("build",),
        paths=("tests/apiserver", "tests/chart"),
        marker="apiserver",
    ),
    Tier(
        name="node",
        says="a real node with real vLLM",
        budget=2100,
        prepare=("engine", "ensure"),
        paths=("tests/cluster",),
        marker="node",
    ),
)


@dataclass
class Outcome:
    """What one tier came to."""

    tier: Tier
    preparing: float = 0
    """Seconds until what it needs was built and up: minutes on a cold cache, so the budget leaves them out."""
    seconds: float = 0
    passed: int = 0
    failed: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    """Reason to number of tests."""


def count(report: Path, outcome: Outcome) -> None:
    """Add the tests of a JUnit report to `outcome`."""
    for case in ET.parse(report).getroot().iter("testcase"):
        if (skip := case.find("skipped")) is not None:
            reason = skip.get("message") or "no reason given"
            outcome.skipped[reason] = outcome.skipped.get(reason, 0) + 1
        elif case.find("failure") is not None or case.find("error") is not None:
            outcome.failed += 1
        else:
            outcome.passed += 1


def run(tier: Tier) -> Outcome:
    """Run one tier to its end."""
    outcome = Outcome(tier)
    print(f"\n=== {tier.name}: {tier.says} (budget {tier.budget} s)", flush=True)
    began = time.monotonic()
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'operator'}{os.pathsep}{ROOT / 'tests'}"}
    for command in [(sys.executable, "-m", "cluster", verb) for verb in tier.prepare]:
        subprocess.run(command, cwd=ROOT, env=environment)  # its failure shows in the tests, with the reason they give
    outcome.preparing = time.monotonic() - began
    started = time.monotonic()
    for command in tier.commands:
        print("+", " ".join(Path(part).name if part.startswith("/") else part for part in command), flush=True)
        done = subprocess.run(command, cwd=ROOT, env=environment)
        outcome.passed, outcome.failed = outcome.passed + (not done.returncode), outcome.failed + bool(done.returncode)
    if tier.paths:
        CACHE.mkdir(exist_ok=True)
        report = CACHE / f"junit-{tier.name}.xml"
        report.unlink(missing_ok=True)
        select = ("-m", tier.marker) if tier.marker else ()
        command = (*tier.runner, "-q", f"--junitxml={report}", "--durations=5", *select, *tier.paths)
        done = subprocess.run(command, cwd=ROOT, env=environment)
        if report.exists():
            count(report, outcome)
        if done.returncode and not outcome.failed:  # collection errors, no tests, an interrupt: none of them is a pass
            outcome.failed = 1
    outcome.seconds = time.monotonic() - started
    return outcome


def summary(outcomes: Sequence[Outcome], *, no_skip: bool) -> int:
    """Print what ran; return the exit status."""
    print("\n=== tiers")
    for o in outcomes:
        over = "" if o.seconds <= o.tier.budget else "  OVER ITS BUDGET"
        made = f"  (and {o.preparing:.0f} s to prepare)" if o.tier.prepare else ""
        counts = f"{o.passed} passed, {o.failed} failed, {sum(o.skipped.values())} skipped"
        print(f"{o.tier.name:<11} {o.seconds:6.0f} s of {o.tier.budget:4} s  {counts}{over}{made}")
        for reason, number in sorted(o.skipped.items()):
            print(f"{'':11} skipped {number}: {reason}")
    left_out = [tier.name for tier in TIERS if tier.name not in {o.tier.name for o in outcomes}]
    if left_out:
        print("not asked for:", ", ".join(left_out))
    passed, failed = sum(o.passed for o in outcomes), sum(o.failed for o in outcomes)
    skipped = sum(sum(o.skipped.values()) for o in outcomes)
    if no_skip and skipped:
        print("EPD_NO_SKIP is set: a skipped test is a failure")
        passed, failed, skipped = passed, failed + skipped, 0
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


def main(names: Sequence[str]) -> int:
    """Run the named tiers, or all."""
    known = {tier.name for tier in TIERS}
    if unknown := set(names) - known:
        print(
            f"unknown tier {', '.join(sorted(unknown))}: choose from {', '.join(t.name for t in TIERS)}",
            file=sys.stderr,
        )
        return 2
    outcomes = [run(tier) for tier in TIERS if not names or tier.name in names]
    return summary(outcomes, no_skip=bool(os.environ.get("EPD_NO_SKIP")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
