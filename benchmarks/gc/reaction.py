"""From crossing the high watermark to the first byte freed, and to low: the real loop on a small tmpfs of its own."""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import measure
import trees

from epd.collector.asking import Brief
from epd.collector.inputs import Liveness
from epd.collector.loop import POLL_SECONDS, Loop
from epd.collector.main import usage
from epd.collector.policy import InForce
from epd.collector.seen import Root

LIMIT: Final = 10.0
"""Seconds to the first byte freed."""
_VOLUME: Final = 64 * 2**20
_ENTRY: Final = 64 * 2**10
_FILLED: Final = 0.8
_CROSSED: Final = 0.9
_WAIT: Final = 60.0
_LOOK: Final = 0.01


class Asks:
    """An API server that answers at once."""

    last: Liveness | None = None
    last_valid: float | None = None

    def begin(self) -> Brief:
        return Brief(claim=trees.CLAIM, in_force=InForce(policy=trees.POLICY))


def run(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        found = [_one(root, POLL_SECONDS * number / rounds) for number in range(rounds)]
    first, low = (statistics.median(times) for times in zip(*found, strict=True))
    worst = max(one[0] for one in found)
    print(
        f"first byte freed after {first:.1f} s (worst of {rounds}: {worst:.1f} s), down to low after {low:.1f} s; "
        f"limit {LIMIT:g} s: {worst / LIMIT:.2f} of it, {measure.verdict(reached=worst <= LIMIT)}",
        flush=True,
    )


def _one(root: str, phase: float) -> tuple[float, float]:
    """Cross the watermark `phase` seconds after a look at the usage; return seconds to the first byte and to low."""
    measure.mount_tmpfs(root, _VOLUME)
    try:
        trees.version(root, trees.LIVE, int(_VOLUME * _FILLED) // _ENTRY, size=_ENTRY)
        stopping: list[Callable[[], bool]] = []
        collection = trees.collection(root, stopping=lambda: stopping[0]())
        loop = Loop(root=Root(claim="cache", sub_path=""), asks=Asks(), collects=collection, usage=partial(usage, root))
        stopping.append(loop.stopping)
        thread = threading.Thread(target=loop.run)
        thread.start()
        try:
            _until(lambda: loop.view().tally.latest is not None)
            time.sleep(phase)
            return _crossed(root)
        finally:
            loop.stop()
            thread.join()
    finally:
        measure.unmount(root)


def _crossed(root: str) -> tuple[float, float]:
    with open(f"{root}/not-ours", "wb") as file:
        file.write(b"x" * int((_CROSSED - usage(root)) * _VOLUME))
    began, most = time.monotonic(), os.statvfs(root).f_bfree
    if usage(root) * 100 <= trees.POLICY.high_percent:
        raise SystemExit("the volume is not above high")
    _until(lambda: os.statvfs(root).f_bfree > most)
    first = time.monotonic() - began
    _until(lambda: usage(root) * 100 <= trees.POLICY.low_percent)
    return first, time.monotonic() - began


def _until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + _WAIT
    while not done():
        if time.monotonic() > end:
            raise SystemExit(f"not done within {_WAIT:g} s")
        time.sleep(_LOOK)
