"""What the connector costs the engine core's thread: time per `ensure_cache_available` call, hit by hit.

    python benchmarks/connector_scheduler.py [--requests 2000] [--megabytes 0.1]

Real store, real copies, threads as in an engine; requests by their shape only, so vLLM is not needed. The copy itself
is made in a pool and not counted, but its thread competes for the interpreter, as it does in an engine. Prints one JSON
line per kind of call: calls, median, p99 and longest, in microseconds.
"""

from __future__ import annotations

import argparse
import json
import secrets
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parents[1] / "operator"))

from epd.connector.finder import Finder, Widths
from epd.connector.local import LocalCopies
from epd.connector.probe import Health, Pool
from epd.connector.scheduler import SchedulerSide
from epd.connector.store import Record, Shape, Store
from epd.connector.upkeep import Upkeep

WIDTH = 2048
PROMPT = 1000
VERSION = "v1-bench-0123456789ab"
GOAL_MICROSECONDS = 50
"""Issue 4: scheduler-thread time per ensure call on the hit path, the copy not counted."""


@dataclass(frozen=True)
class Bench:
    """A store with its scheduler's half, and what was put into it."""

    side: SchedulerSide
    rows: int
    identifiers: list[str]


def made(root: str, shared: str, entries: int, megabytes: float) -> Bench:
    """Publish entries and start the scheduler's half of a consumer."""
    rows = max(int(megabytes * 1e6 / (2 * WIDTH)), 1)
    shape = Shape(dtype="BF16", rows=rows, width=WIDTH)
    record = Record(version=VERSION, claim="default/bench", layout="Managed", created="2026-01-01T00:00:00+00:00")
    store = Store(root, VERSION, stamp_seconds=450)
    store.prepare(record)
    payload = secrets.token_bytes(shape.nbytes)
    identifiers = [f"image-{number}" for number in range(entries)]
    for identifier in identifiers:
        store.publish(identifier, payload, shape)
    lookups = Pool("lookup", 8)
    health = Health(lookups, lambda: None, deadline=5)
    copies = LocalCopies(shared, budget_bytes=1 << 30)
    finder = Finder(store, copies, budget_bytes=1 << 30, widths=Widths(store, default=WIDTH), dtype="BF16")
    upkeep = Upkeep(store, Pool("upkeep", 1), health, record=record, widths={}, stamp_seconds=450, deadline=5)
    side = SchedulerSide(
        store=store,
        finder=finder,
        upkeep=upkeep,
        health=health,
        lookups=lookups,
        local=Pool("release", 1),
        producer=False,
        consumer=True,
        deadline=5,
        fields=lambda _: {"image_grid_thw"},
    )
    return Bench(side, rows, identifiers)


def request(bench: Bench, number: int, *, pixels: bool) -> SimpleNamespace:
    """A request with one picture at the start of its prompt."""
    data = {"image_grid_thw": SimpleNamespace(data=b"grid")}
    if pixels:
        data["pixel_values"] = SimpleNamespace(data=b"pixels")
    feature = SimpleNamespace(
        identifier=bench.identifiers[number % len(bench.identifiers)],
        modality="image",
        data=data,
        mm_position=SimpleNamespace(offset=4, length=bench.rows, get_num_embeds=lambda: bench.rows),
    )
    return SimpleNamespace(request_id=f"r{number}", mm_features=[feature])


def life(bench: Bench, number: int, times: dict[str, list[int]], *, pixels: bool) -> None:
    """One request from admission to its end, each call timed."""
    side, one = bench.side, request(bench, number, pixels=pixels)

    def ensure(kind: str, computed: int) -> bool:
        began = time.perf_counter_ns()
        ready = side.ensure(one, computed)
        times.setdefault(kind, []).append(time.perf_counter_ns() - began)
        return ready

    kind = "first call of a request (lookup submitted)"
    while not ensure(kind, 0):
        kind = "call that finds the copy, or not yet"
        side.plan(0, ())
        side.account()
        time.sleep(0.0005)  # as EngineCoreProc, which sleeps 1 ms when it ran no model
    assert side.has(one.mm_features[0].identifier)
    ensure("call with the verdict known", 0)
    side.allocated(one, 0)
    side.plan(PROMPT, ())
    side.account()
    for _ in range(3):
        ensure("call while decoding", PROMPT)
    side.finished(one)
    side.plan(1, (one.mm_features[0].identifier,))  # as evicted, so that the next one is a hit of the store again
    side.account()


def report(kind: str, values: list[int]) -> float:
    """Print one line; return the median in microseconds."""
    ordered = sorted(value / 1000 for value in values)
    median, p99 = statistics.median(ordered), ordered[int(len(ordered) * 0.99)]
    line = {"kind": kind, "calls": len(ordered), "median_us": round(median, 2), "p99_us": round(p99, 2)}
    print(json.dumps(line | {"longest_us": round(ordered[-1], 1), "goal_us": GOAL_MICROSECONDS}))
    return median


def main() -> int:
    """Exit status 1 if the median of any kind of call misses the goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--entries", type=int, default=100)
    parser.add_argument("--megabytes", type=float, default=0.1, help="size of an entry")
    parser.add_argument("--root", help="directory on the volume to measure; a temporary one if absent")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.root) as root, tempfile.TemporaryDirectory(dir="/dev/shm") as shared:
        bench = made(root, shared, chosen.entries, chosen.megabytes)
        worst = 0.0
        for pixels in (True, False):
            times: dict[str, list[int]] = {}
            for number in range(chosen.requests):
                life(bench, number, times, pixels=pixels)
            label = "with pixels" if pixels else "without pixels"
            for kind, values in times.items():
                worst = max(worst, report(f"{label}: {kind}", values))
            report(f"{label}: all calls of the hit path", [value for values in times.values() for value in values])
        bench.side.close()
    return int(worst > GOAL_MICROSECONDS)


if __name__ == "__main__":
    sys.exit(main())
