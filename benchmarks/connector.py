"""Save and load of entries: the Managed connector against vLLM's ECExampleConnector, in one run.

    <python of an environment with vLLM> benchmarks/connector.py [--directory DIR ...] [--sizes 0.1,1,10,100] [--cold]

Both sides run their own code without an engine around it: they save the same tensor under a new name per round and load
it again, in turns, and each load ends with the bytes copied to where a model reads them, so that a lazily mapped file
counts in full. Ours has the checksum in it, computed on save and verified on load, the hand-over to threads, and the
copy through shared memory between the engine's two processes. Figures are medians of MB/s over rounds; a ratio above 1
says that ours is faster. `CPU` is the same ratio of processor time, which busy neighbours change less. `step` is the
part of our load that the engine's step waits for, as it does for all of theirs; `raw` is one thread's blake3 of the
tensor, the limit of whoever verifies. Files are in the page cache, unless `--cold` drops each from it before it is
loaded, as on a node that did not write it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "operator"))

from vllm.distributed.ec_transfer.ec_connector.example_connector import (
    ECExampleConnector,
    ECExampleConnectorMetadata,
    MMMeta,
)

from epd.connector import placement
from epd.connector.entry import checksum
from epd.connector.finder import Finder, Found, Widths
from epd.connector.local import LocalCopies
from epd.connector.probe import Health, Pool
from epd.connector.scheduler import Step
from epd.connector.store import Record, Store
from epd.connector.worker import WorkerSide

VERSION: Final = "v1-bench-000000000000"
WIDTH: Final = 2048
"""Of Qwen2-VL-2B's embeddings and near to others'; only the product with the rows matters here."""
MEGABYTE: Final = 1_000_000
LEAST_ROUNDS: Final = 15
"""Fewer make no median on machines whose clock and neighbours change."""

Times = dict[str, list[tuple[float, float]]]


class Example:
    """vLLM's connector, its own code, without the engine around it."""

    def __init__(self, root: str) -> None:
        self._connector: Any = object.__new__(ECExampleConnector)
        self._connector._storage_path = root
        self._connector._is_producer = True

    def save(self, name: str, tensor: torch.Tensor) -> None:
        self._connector.save_caches({name: tensor}, name)

    def load(self, name: str, tensor: torch.Tensor, into: torch.Tensor) -> None:
        metadata = ECExampleConnectorMetadata()
        metadata.add_mm_data(MMMeta.make_meta(name, tensor.shape[0]))
        self._connector.bind_connector_metadata(metadata)
        cache: dict[str, torch.Tensor] = {}
        self._connector.start_load_caches(cache)
        into.copy_(cache[name])


class Managed:
    """Ours: a scheduler's finder that copies into shared memory, and a worker that saves, and reads the copy."""

    def __init__(self, root: str, budget: int) -> None:
        self._store = Store(root, VERSION, stamp_seconds=60)
        self._copies = LocalCopies(budget_bytes=budget)
        self._writers = Pool("writers", 2)
        self._finder = Finder(
            self._store,
            self._copies,
            budget_bytes=budget,
            widths=Widths(self._store, default=WIDTH),
            dtype="BF16",
        )
        self._worker = WorkerSide(
            store=self._store,
            record=Record(version=VERSION, claim="bench/bench", layout="Managed", created=""),
            writers=self._writers,
            health=Health(self._writers, lambda: None, deadline=60),
            write_timeout=60,
            device=lambda: torch.device("cpu"),
            rank=lambda: 0,
            synchronizing=placement.synchronizing(),
            dtype="BF16",
        )
        self.step_seconds = 0.0

    def save(self, name: str, tensor: torch.Tensor) -> None:
        self._worker.save(name, tensor)
        self._worker.settle()

    def load(self, name: str, tensor: torch.Tensor, into: torch.Tensor) -> None:
        found = self._finder.find((name, tensor.shape[0]), "image", pin=False)
        if not isinstance(found, Found):
            raise SystemExit(f"not found: {found}")
        start = time.perf_counter()
        cache: dict[str, torch.Tensor] = {}
        self._worker.load(Step(1, (found.load,), (), None), cache)
        into.copy_(cache[name])
        self.step_seconds = time.perf_counter() - start
        self._finder.release(found.source)

    def close(self) -> None:
        self._writers.close(1)
        self._copies.close()
        self._store.close()


def seconds(action: Callable[[], object]) -> tuple[float, float]:
    """Wall time, and processor time of all threads."""
    start, used = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - start, time.process_time() - used


def measured(directory: str, megabytes: float, budget_seconds: float, *, cold: bool) -> Times:
    """Rounds of save and load of both sides in turns, each side first in every other round."""
    rows = max(1, round(megabytes * MEGABYTE / (2 * WIDTH)))
    tensor = torch.rand(rows, WIDTH).to(torch.bfloat16)
    into = torch.empty_like(tensor)
    root = tempfile.mkdtemp(prefix="bench-", dir=directory)
    os.makedirs(f"{root}/example")
    sides: dict[str, Any] = {"theirs": Example(f"{root}/example"), "ours": Managed(root, 4 * tensor.nbytes + MEGABYTE)}
    times: Times = {key: [] for key in ("theirs save", "theirs load", "ours save", "ours load", "ours step", "raw")}
    end, number = time.monotonic() + budget_seconds, 0
    try:
        while number < LEAST_ROUNDS or time.monotonic() < end:
            number += 1
            for side in sorted(sides, reverse=bool(number % 2)):
                name = f"{side}-{number}"
                saved = seconds(lambda: sides[side].save(name, tensor))  # noqa: B023 - called at once
                if cold:
                    drop_from_cache(root)
                into.zero_()
                loaded = seconds(lambda: sides[side].load(name, tensor, into))  # noqa: B023 - called at once
                if not torch.equal(into, tensor):
                    raise SystemExit(f"{side} lost bytes")
                times[f"{side} save"].append(saved)
                times[f"{side} load"].append(loaded)
            times["ours step"].append((sides["ours"].step_seconds, 0.0))
            times["raw"].append(seconds(lambda: checksum(memoryview(tensor.view(torch.uint8).numpy()).cast("B"))))
            for path in removable(root):
                os.unlink(path)
    finally:
        sides["ours"].close()
        shutil.rmtree(root)
    return {key: values[2:] for key, values in times.items()}  # the first two warm up


def drop_from_cache(root: str) -> None:
    for path in removable(root):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)  # only what is on disk can be dropped
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def removable(root: str) -> Iterator[str]:
    for base, _, names in os.walk(root):
        yield from (f"{base}/{name}" for name in names if name.endswith(".safetensors"))


def report(directory: str, megabytes: float, times: Times) -> None:
    rate = {key: megabytes / statistics.median(wall for wall, _ in values) for key, values in times.items()}
    used = {key: statistics.median(cpu for _, cpu in values) for key, values in times.items()}
    rounds = len(times["ours save"])
    for what in ("save", "load"):
        ours, theirs = rate[f"ours {what}"], rate[f"theirs {what}"]
        step = f"{rate['ours step']:>8.0f}" if what == "load" else " " * 8
        print(
            f"{directory:<16}{megabytes:>6} {what:<6}{ours:>8.0f}{theirs:>8.0f}{ours / theirs:>8.2f}x"
            f"{used[f'theirs {what}'] / used[f'ours {what}']:>8.2f}x{step}"
            f"{rate['raw']:>8.0f}{rounds:>8}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", action="append", help="file systems to measure on; default: shared memory")
    parser.add_argument("--sizes", default="0.1,1,10,100", help="megabytes of an entry")
    parser.add_argument("--cold", action="store_true", help="load from the disk, not from the page cache")
    parser.add_argument("--seconds", type=float, default=3, help="per size and file system")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"{'MB/s':<16}{'MB':>6} {'':<6}{'ours':>8}{'theirs':>8}{'ratio':>9}{'CPU':>9}{'step':>8}{'raw':>8}{'rounds':>8}"
    )
    for directory in given.directory or ["/dev/shm"]:
        for size in given.sizes.split(","):
            report(directory, float(size), measured(directory, float(size), given.seconds, cold=given.cold))


if __name__ == "__main__":
    main()
