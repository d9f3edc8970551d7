"""How long a dead version takes to leave the name space, once it is due."""

from __future__ import annotations

import statistics
import tempfile
import time
from typing import Any, Final

import measure
import trees

from epd.collector.files import KernelFiles
from epd.collector.inputs import Liveness
from epd.connector import layout

LIMIT: Final = 10.0
"""Milliseconds, for any number of entries."""


class Timed:
    """The real file system; remembers when a version was renamed into the trash, and how long that call took."""

    def __init__(self) -> None:
        self._real: Any = KernelFiles()
        self.done = 0.0
        self.took = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def rename(self, src: str, dst: str, **where: int) -> None:
        began = time.perf_counter()
        self._real.rename(src, dst, **where)
        if layout.is_version(src):
            self.done = time.perf_counter()
            self.took = self.done - began


def run(directory: str, entries: int, rounds: int) -> None:
    found = [_one(directory, entries) for _ in range(rounds)]
    call, last, whole = (statistics.median(times) for times in zip(*found, strict=True))
    print(
        f"{measure.file_system(directory):<8}{entries:>9} entries   from the last answer of the API server to renamed "
        f"{last:.2f} ms (the call itself {call:.2f}); limit {LIMIT:g} ms: {last / LIMIT:.2f} of it, "
        f"{measure.verdict(reached=last <= LIMIT)}\n{'':27}from the beginning of the pass, with a look at every entry "
        f"for users, {whole:.0f} ms: {1000 * whole / entries:.2f} us per entry",
        flush=True,
    )


def _one(directory: str, entries: int) -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory(dir=directory) as root:
        trees.version(root, trees.DEAD, entries)
        trees.condemn(root, trees.DEAD)
        files, answers = Timed(), [0.0]

        def ask() -> Liveness:
            if not files.done:
                answers.append(time.perf_counter())
            return trees.alive()

        began = time.perf_counter()
        result = trees.collection(root, files=files, ask=ask, stopping=lambda: files.done > 0).run(
            trees.CLAIM, trees.POLICY
        )
        if result.renamed != (trees.DEAD,):
            raise SystemExit(f"not renamed: {result}")
        return 1000 * files.took, 1000 * (files.done - answers[-1]), 1000 * (files.done - began)
