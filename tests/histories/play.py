"""Plays histories, in several processes, and says what came of them.

    python -m histories.play 0:10000            these seeds, on two processes
    EPD_SEED=17 python -m histories.play        one seed, with all that it has to say
    python -m histories.play 0:500 --mutate N   against the source with mutation N, up to the first violation

Exit status: 0 if nothing was violated.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
PROCESSES = 2
"""As many as the machines have cores that run the tests."""
CHUNK = 1250
"""Seeds that one process is given at a time: a second of imports is nothing to them, and all end about together."""


@dataclass
class Summary:
    """What some histories came to."""

    seeds: int = 0
    steps: int = 0
    seconds: float = 0.0
    checks: Counter[str] = field(default_factory=Counter)
    """Invariant to how often it was judged."""
    events: Counter[str] = field(default_factory=Counter)
    crashed: set[tuple[str, str, str]] = field(default_factory=set)
    violations: list[tuple[int, int, str]] = field(default_factory=list)
    """Seed, invariant and what happened."""

    def add(self, other: dict[str, Any]) -> None:
        self.seeds += other["seeds"]
        self.steps += other["steps"]
        self.checks.update(other["checks"])
        self.events.update(other["events"])
        self.crashed |= {(module, function, call) for module, function, call in other["crashed"]}
        self.violations += [(seed, invariant, text) for seed, invariant, text in other["violations"]]

    def encode(self) -> str:
        return json.dumps(vars(self) | {"crashed": sorted(self.crashed)})


def play(
    start: int, end: int, *, first_only: bool = False, focus: str = "", crash: tuple[str, str, str] | None = None
) -> Summary:
    """Play seeds in this process.

    Args:
        first_only: Whether the first violation is all that is wanted.
        focus: A function at whose calls programs hang.
        crash: The one call at which programs crash, played until one did. None: at all of them, now and then.
    """
    import histories.coarse  # noqa: F401 - before all that counts by buckets
    from histories.sites import call_sites
    from histories.world import World

    logging.disable(logging.CRITICAL)
    sites = (crash,) if crash else tuple(sorted(call_sites()))
    summary, began = Summary(), time.monotonic()
    for seed in range(start, end):
        world = World(seed, crash_sites=sites, focus=focus).run()
        summary.seeds += 1
        summary.steps += world.schedule.steps
        summary.checks.update({str(number): count for number, count in world.oracle.checks.items()})
        summary.events.update(world.counts)
        summary.events.update(world.oracle.events)
        summary.crashed |= world.crashed
        summary.violations += [(seed, number, text) for number, text in world.oracle.violations]
        if (first_only and summary.violations) or crash in summary.crashed:
            break
    summary.seconds = time.monotonic() - began
    return summary


def play_all(start: int, end: int, *, processes: int = PROCESSES) -> Summary:
    """Play seeds in several processes. A run that is interrupted returns what it has found by then."""
    summary, began = Summary(), time.monotonic()
    chunks = [(first, min(end, first + CHUNK)) for first in range(start, end, CHUNK)]
    running: list[subprocess.Popen[bytes]] = []
    try:
        while chunks or running:
            while chunks and len(running) < processes:
                running.append(spawn(*chunks.pop(0)))
            process = running[0]
            out, _ = process.communicate()
            del running[0]
            if process.returncode not in (0, 1):
                raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
            summary.add(json.loads(out))
            print(f"... {summary.seeds} seeds, {len(summary.violations)} violations", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        pass
    finally:
        # or they would play on, and complain in the end that nobody reads what they found
        for process in running:
            process.terminate()
        for process in running:
            process.wait()
    summary.seconds = time.monotonic() - began
    return summary


def spawn(start: int, end: int, *more: str) -> subprocess.Popen[bytes]:
    """Start a process that plays seeds and prints JSON. Hashes are fixed, so that seeds can be replayed."""
    environment = os.environ | {
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": f"{ROOT / 'operator'}{os.pathsep}{ROOT / 'tests'}",
    }
    environment.pop("EPD_SEED", None)
    command = [sys.executable, "-m", "histories.play", f"{start}:{end}", "--json", *more]
    # a process group of its own, since a terminal interrupts all of a group: workers end when they are told to
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=ROOT, process_group=0)


def tell(summary: Summary) -> None:
    """Print a summary for people."""
    rate = summary.seeds / summary.seconds if summary.seconds else 0
    print(f"{summary.seeds} seeds in {summary.seconds:.0f} s ({rate:.0f} seeds/s), {summary.steps} steps")
    print("judged:", ", ".join(f"invariant {n}: {summary.checks[n]}" for n in sorted(summary.checks, key=int)))
    print("happened:", ", ".join(f"{what}: {number}" for what, number in sorted(summary.events.items())))
    print(f"crashed at {len(summary.crashed)} call sites")
    for seed, invariant, text in summary.violations[:50]:
        print(f"VIOLATED invariant {invariant}, seed {seed}: {text}")
    print(f"{len(summary.violations)} violations")


def main(arguments: Sequence[str] | None = None) -> int:
    """Play what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m histories.play")
    parser.add_argument("seeds", nargs="?", default="0:1000", help="FIRST:END, or a number of seeds")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--json", action="store_true", help="in this process, and print JSON")
    parser.add_argument("--mutate", type=int, default=None, help="number of a mutation; stop at the first violation")
    parser.add_argument("--crash", metavar="MODULE:FUNCTION:CALL", help="crash at this call alone, until one did")
    given = parser.parse_args(arguments)
    first, colon, last = given.seeds.partition(":")
    start, end = (int(first), int(last)) if colon else (0, int(first))
    focus = ""
    if given.mutate is not None:
        from histories.mutations import MUTATIONS, install

        install(MUTATIONS[given.mutate])
        focus = MUTATIONS[given.mutate].focus
    if seed := os.environ.get("EPD_SEED"):
        start, end = int(seed), int(seed) + 1
    os.environ.setdefault("PYTHONHASHSEED", "0")
    module, _, call = (given.crash or "").partition(":")
    function, _, call = call.partition(":")
    crash = (module, function, call) if given.crash else None
    alone = given.json or bool(seed) or crash is not None or given.mutate is not None
    if not alone:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C does: its workers must end with it
    summary = (
        play(start, end, first_only=given.mutate is not None, focus=focus, crash=crash)
        if alone
        else play_all(start, end, processes=given.processes)
    )
    if given.json:
        print(summary.encode())
    else:
        tell(summary)
    return 1 if summary.violations else 0


if __name__ == "__main__":
    sys.exit(main())
