"""The proxy's cost, beside a relay of bytes, vLLM's own proxy and vllm-router, in runs that take turns.

    python benchmarks/proxy [--quick] [--rounds 7] [--only "text c64,..."] [--stacks relay,epd-proxy]
    python benchmarks/proxy --tree DIR --interpreted      another checkout's proxy; its sources as they are
    python benchmarks/proxy --soak 30          half an hour of clients that vanish and engines that die

What is measured runs on one CPU, engines and loader on another, and neither CPU sleeps meanwhile; where others use the
machine, trust CPU time and ratios within a round, not wall time. Exit status 1 where a gate of gates.toml is missed or
could not be measured.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import gates
import peers
import results
import soak
from gates import Gate
from peers import CACHE, HERE, ROOT
from results import Run
from scenarios import MARGIN_SECONDS, SCENARIOS, Scenario
from stacks import DIRECT, OURS, RELAY, STACKS, Instance, Processes, Rack, cpus, named

from cluster import compiled


def measure(rack: Rack, chosen: list[Scenario], stacks: list[str], rounds: int) -> list[Run]:
    """Run every scenario on every stack, round by round; the order of the stacks changes from round to round."""
    runs: list[Run] = []
    with (CACHE / "runs.jsonl").open("w") as file:
        for number in range(rounds):
            for scenario in chosen:
                began = time.monotonic()
                for stack in stacks[number % len(stacks) :] + stacks[: number % len(stacks)]:
                    instance = rack.instances.get(named(stack, three_legs=scenario.three_legs))
                    if instance is None or (scenario.compared and stack == DIRECT):
                        continue
                    run = Run(scenario=scenario.name, stack=stack, round=number, figures=load(rack, scenario, instance))
                    runs.append(run)
                    file.write(json.dumps(vars(run)) + "\n")
                load_average = os.getloadavg()[0]
                spent = time.monotonic() - began
                print(
                    f"round {number + 1}/{rounds}  {scenario.name}: {spent:.0f} s, load {load_average:.1f}", flush=True
                )
    return runs


def load(rack: Rack, scenario: Scenario, instance: Instance) -> dict[str, float]:
    """Load one stack once; what the loader says."""
    engines = ",".join(engine.address for engine in rack.engines.values())
    command = [str(rack.binary), "load", "-address", instance.address, "-pids", str(instance.process.pid)]
    command += ["-engines", engines, *scenario.arguments()]
    if scenario.compared:
        command += ["-against", rack.engines["pd"].address]
    with rack.awake():
        done = subprocess.run(
            ["setpriv", "--pdeathsig", "KILL", "taskset", "-c", str(cpus()[1]), *command],
            capture_output=True,
            text=True,
            timeout=scenario.seconds + MARGIN_SECONDS,
        )
    if done.returncode:
        raise SystemExit(f"the loader failed: {done.stderr[-500:]}")
    said = json.loads(done.stdout)
    if sample := said.pop("sample", ""):
        print(f"  errors of {instance.address} ({scenario.name}): {said['errors']}, such as {sample}", flush=True)
    return {name: float(value) for name, value in said.items()}


def report(rack: Rack, runs: list[Run], chosen: list[Scenario], stacks: list[str], limits: list[Gate]) -> bool:
    """Print all tables; whether every gate was reached."""
    for scenario in chosen:
        print(f"\n### {scenario.name}\n\n{results.table(runs, scenario.name, stacks, RELAY)}")
    print("\n### Gates\n")
    verdicts = gates.check(limits, runs, rack.absent)
    print(gates.table(verdicts))
    for stack, reason in rack.absent.items():
        print(f"\nabsent: {stack}: {reason}")
    missed = [verdict for verdict in verdicts if not verdict.reached]
    print(f"\n{len(verdicts) - len(missed)} of {len(verdicts)} gates reached")
    return not missed


def chosen_scenarios(limits: Iterable[Gate], only: str, *, quick: bool) -> list[Scenario]:
    """Return the scenarios that were asked for. Raises SystemExit for a name that is none."""
    names = only.split(",") if only else [gate.scenario for gate in limits] if quick else [s.name for s in SCENARIOS]
    if unknown := set(names) - {scenario.name for scenario in SCENARIOS} - {gates.ANY}:
        raise SystemExit(f"no such scenario: {', '.join(sorted(unknown))}; there are {[s.name for s in SCENARIOS]}")
    return [scenario for scenario in SCENARIOS if scenario.name in names]


def chosen_gates(limits: Iterable[Gate], scenarios: list[Scenario], stacks: list[str]) -> list[Gate]:
    """Leave out the gates that a selection of scenarios or stacks makes meaningless."""
    names = {scenario.name for scenario in scenarios} | {gates.ANY}
    return [gate for gate in limits if gate.scenario in names and {gate.of, gate.over or gate.of} <= set(stacks)]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/proxy", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the three cheap gates, without peers")
    parser.add_argument("--rounds", type=int, default=7, help="default %(default)s")
    parser.add_argument("--only", default="", metavar="SCENARIOS", help="comma-separated names")
    parser.add_argument("--stacks", default="", help=f"default: {','.join(STACKS)}")
    parser.add_argument("--tree", type=Path, default=ROOT, help="checkout whose proxy is measured (default: this one)")
    parser.add_argument(
        "--interpreted", action="store_true", help="measure its sources as they are, not compiled as in the image"
    )
    parser.add_argument(
        "--soak", type=float, nargs="?", const=30, metavar="MINUTES", help="instead: a soak (default 30)"
    )
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    with ExitStack() as stack:
        tree = given.tree.resolve()
        package = tree / "operator" if given.interpreted else compiled.package(tree)
        rack = Rack(Processes(stack), peers.binary(), package)
        if given.soak is not None:
            sys.exit(0 if soak.run(rack, given.soak * 60) else 1)
        limits = [gate for gate in gates.read_gates(HERE / "gates.toml") if gate.quick or not given.quick]
        stacks = given.stacks.split(",") if given.stacks else [RELAY, OURS] if given.quick else list(STACKS)
        if unknown := set(stacks) - set(STACKS):
            raise SystemExit(f"no such stack: {', '.join(sorted(unknown))}; there are {', '.join(STACKS)}")
        chosen = chosen_scenarios(limits, given.only, quick=given.quick)
        rack.start_engines()
        for name in stacks:
            for three_legs in sorted({scenario.three_legs for scenario in chosen}):
                rack.start(name, three_legs=three_legs)
        print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; {time.strftime('%Y-%m-%d %H:%M')}")
        print(f"stacks: {', '.join(rack.instances)}; absent: {rack.absent or 'none'}", flush=True)
        runs = measure(rack, chosen, stacks, given.rounds)
        reached = report(rack, runs, chosen, stacks, chosen_gates(limits, chosen, stacks))
    sys.exit(0 if reached else 1)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
