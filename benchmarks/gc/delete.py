"""Bulk deletion of a dead version with all of its checks, against `rm -rf` and against crawl-and-xargs."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from typing import Any, Final, get_args

import crawler
import measure
import trees

from epd.collector.files import KernelFiles
from epd.collector.inputs import Layout
from epd.collector.ledger import Ledger
from epd.collector.pace import Pace
from epd.collector.trash import Purge

LIMIT: Final = 1.0
"""Of the CPU of `rm -rf`."""
OURS: Final = "trash"
PASS: Final = "whole pass"
RM: Final = "rm -rf"
CRAWL: Final = "crawl and xargs"


def run(directory: str, entries: int, rounds: int) -> None:
    ways = {OURS: _purge, PASS: _pass, RM: None, CRAWL: crawler.delete}
    for layout in get_args(Layout):
        costs: dict[str, list[measure.Cost]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                costs[name].append(_one(directory, entries, layout, way))
        _report(measure.file_system(directory), layout, entries, costs)


def _one(directory: str, entries: int, layout: Layout, way: Callable[[str], Any] | None) -> measure.Cost:
    root = tempfile.mkdtemp(dir=directory)
    try:
        path = trees.version(root, trees.DEAD, entries, of=layout)
        cost = measure.cost((lambda: way(path)) if way is not None else ["rm", "-rf", path])
        if os.path.exists(path) or (way is not None and cost.said != entries):
            raise SystemExit(f"{path} was not deleted in full: {cost}")
    finally:
        shutil.rmtree(root)
    return cost


def _purge(path: str) -> int:
    """Rename, and delete the trash: no scan before it."""
    root, name = os.path.split(path)
    trash = os.open(trees.throw_away(root, name), os.O_RDONLY | os.O_DIRECTORY)
    ledger = Ledger()
    pace = Pace(math.inf, clock=time.monotonic, sleep=time.sleep, stopping=lambda: False)
    pace.begin(math.inf)
    if not Purge(KernelFiles(), ledger, pace).purge(f"{name}.0", dir_fd=trash):
        raise OSError(f"something stayed: {ledger.errors} {ledger.spared}")
    return sum(ledger.removed.values())


def _pass(path: str) -> int:
    """As the collector does it: one scan that nobody uses the version, rename, one that counts the trash, deletion."""
    root, name = os.path.split(path)
    trees.condemn(root, name)
    collection = trees.collection(root)
    removed = 0
    while True:
        result = collection.run(trees.CLAIM, trees.POLICY)
        removed += result.removed_entries
        if not result.more:
            return removed


def _report(where: str, layout: str, entries: int, costs: dict[str, list[measure.Cost]]) -> None:
    cpu = {name: 1e6 * measure.median(found, "cpu") / entries for name, found in costs.items()}
    wall = {name: 1e6 * measure.median(found, "wall") / entries for name, found in costs.items()}
    ratio = cpu[OURS] / cpu[RM]
    for name in costs:
        goal = f", goal <= {LIMIT:g}: {measure.verdict(reached=ratio <= LIMIT)}" if name == OURS else ""
        print(
            f"{where:<8}{layout:<9}{entries:>9}   {name:<16}CPU us/entry {cpu[name]:>6.2f}  wall {wall[name]:>6.2f}"
            f"   CPU of rm -rf {cpu[name] / cpu[RM]:>5.2f}x{goal}",
            flush=True,
        )
    print(f"{'':29}our CPU is {cpu[OURS] / cpu[CRAWL]:.2f}x that of crawl and xargs", flush=True)
