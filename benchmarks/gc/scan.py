"""Warm scans: a whole pass that only counts, against `find -printf` of the same facts."""

from __future__ import annotations

import shutil
import tempfile
from typing import Any, Final, get_args

import measure
import trees

from epd.collector.inputs import Layout

RATE: Final = 250_000
"""Entries per second (gc.md 5: three times what `find -printf` reached)."""
CPU: Final = 5.0
"""Microseconds per entry."""
_TIMES: Final = "%s %A@ %T@ %i\n"


def run(directory: str, entries: int, rounds: int) -> None:
    for layout in get_args(Layout):
        root = tempfile.mkdtemp(dir=directory)
        try:
            path = trees.version(root, trees.LIVE, entries, of=layout)
            find = ["find", path, "-type", "f", "-printf", _TIMES]
            pairs = [(measure.cost(lambda: _pass(root)), measure.cost(find)) for _ in range(rounds + 1)]  # noqa: B023 - called at once
        finally:
            shutil.rmtree(root)
        ours, theirs = zip(*pairs[1:], strict=True)  # the first round warms up
        if {cost.said for cost in ours} != {entries}:
            raise SystemExit(f"counted {ours}, not {entries}")
        _report(measure.file_system(directory), layout, entries, ours, theirs)


def _pass(root: str) -> Any:
    result = trees.collection(root).run(trees.CLAIM, trees.POLICY)
    return result.scanned_entries if not result.errors else str(result.errors)


def _report(where: str, layout: str, entries: int, ours: Any, theirs: Any) -> None:
    cpu, find_cpu = (1e6 * measure.median(costs, "cpu") / entries for costs in (ours, theirs))
    rate, find_rate = (entries / measure.median(costs, "wall") for costs in (ours, theirs))
    best = max(entries / cost.wall for cost in ours)
    print(
        f"{where:<8}{layout:<9}{entries:>9}   entries/s {rate:>8.0f} (best round {best:.0f}, per second of CPU "
        f"{1e6 / cpu:.0f}) against find {find_rate:.0f}: {rate / find_rate:.1f}x, "
        f"goal >= {RATE}: {measure.verdict(reached=rate >= RATE)}"
        f"\n{'':29}CPU us/entry {cpu:>5.2f} against find {find_cpu:.2f}: {find_cpu / cpu:.1f}x, "
        f"goal <= {CPU:g}: {measure.verdict(reached=cpu <= CPU)}",
        flush=True,
    )
