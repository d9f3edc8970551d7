"""Save and load of entries: the Managed connector against vLLM's ECExampleConnector, in one run.

    <python of an environment with vLLM> benchmarks/connector.py [--directory DIR ...] [--sizes 0.1,1,10,100] [--cold]

Both sides run their own code without an engine around it: they save the same tensor under a new name per round and load
it again, in turns, and each load ends with the bytes copied to where a model reads them, so that a lazily mapped file
counts in full. Ours has the checksum in it, computed on save and verified on load, the hand-over to threads, and the
copy through shared memory between the engine's two processes. Files are in the page cache, unless `--cold` drops each
from it before it is loaded, as on a node that did not write it.

`ours`, `theirs` and `bound` are medians of MB/s over rounds. A ratio above 1 says that ours is faster; `CPU` is that of
processor time, which busy neighbours change less; the last one is the bound's. Kinds:

    save        until the entry is on disk; bound: their save, and one blake3 of the tensor before it
    returns     until `save_caches` returns: what it takes from the engine's thread
    saves       four at once, as of the pictures of one step
    load        from the lookup to the bytes in their place; bound: read once into memory that is there, hash once, and
                copy from there to the place
    step        the part of our load that the engine's step waits for, as it does for all of theirs
    to device   the same, but copied out of the mapping, as it is to a device other than the processor, from 1 MB on
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
from epd.connector.loading import mapped
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
AT_ONCE: Final = 4
"""Saves side by side: the threads that the connector has for them."""
PENDING_BYTES: Final = 256 << 20
"""What may wait for the writers; of more in one step the connector saves one after the other."""
KINDS: Final = ("save", "returns", "saves", "load", "step", "to device")

Spent = tuple[float, float]
"""Seconds by the clock, and of all processors."""
Times = dict[tuple[str, str], list[Spent]]
"""By kind, and ours, theirs or bound; per round."""


class Example:
    """vLLM's connector, its own code, without the engine around it."""

    def __init__(self, root: str) -> None:
        self._connector: Any = object.__new__(ECExampleConnector)
        self._connector._storage_path = root
        self._connector._is_producer = True

    def save(self, name: str, tensor: torch.Tensor) -> None:
        self._connector.save_caches({name: tensor}, name)

    def settle(self) -> None:
        """Nothing is left to do when `save` returned."""

    def load(self, name: str, into: torch.Tensor) -> dict[str, Spent]:
        metadata = ECExampleConnectorMetadata()
        metadata.add_mm_data(MMMeta.make_meta(name, into.shape[0]))

        def load() -> None:
            self._connector.bind_connector_metadata(metadata)
            cache: dict[str, torch.Tensor] = {}
            self._connector.start_load_caches(cache)
            into.copy_(cache[name])

        return dict.fromkeys(("load", "step", "to device"), seconds(load))

    def close(self) -> None:
        """It has nothing."""


class Managed:
    """Ours: a scheduler's finder that copies into shared memory, and a worker that saves, and loads the copy."""

    def __init__(self, root: str, budget: int) -> None:
        self.store = Store(root, VERSION, stamp_seconds=60)
        self._copies = LocalCopies(budget_bytes=budget)
        self._writers = Pool("writers", AT_ONCE)
        self._finder = Finder(
            self.store,
            self._copies,
            budget_bytes=budget,
            widths=Widths(self.store, default=WIDTH),
            dtype="BF16",
        )
        self._worker = WorkerSide(
            store=self.store,
            record=Record(version=VERSION, claim="bench/bench", layout="Managed", created=""),
            writers=self._writers,
            health=Health(self._writers, lambda: None, deadline=60),
            write_timeout=60,
            device=lambda: torch.device("cpu"),
            rank=lambda: 0,
            synchronizing=placement.synchronizing(),
            dtype="BF16",
        )

    def save(self, name: str, tensor: torch.Tensor) -> None:
        self._worker.save(name, tensor)

    def settle(self) -> None:
        self._worker.settle()

    def load(self, name: str, into: torch.Tensor) -> dict[str, Spent]:
        taken: list[Found] = []

        def look() -> None:
            found = self._finder.find((name, into.shape[0]), "image", pin=False)
            if not isinstance(found, Found):
                raise SystemExit(f"not found: {found}")
            taken.append(found)

        def step() -> None:
            cache: dict[str, torch.Tensor] = {}
            self._worker.load(Step(1, (taken[0].load,), (), None), cache)
            into.copy_(cache[name])

        def to_device() -> None:
            with open(taken[0].load.path, "rb") as file:
                values = mapped(file.fileno(), taken[0].load, into.nbytes)
            into.copy_(values.view(into.dtype).reshape(into.shape))

        spent = [seconds(look), seconds(step)]
        on_device = seconds(to_device)
        spent.append(seconds(lambda: self._finder.release(taken[0].source)))
        return {"load": added(*spent), "step": spent[1], "to device": on_device}

    def close(self) -> None:
        self._writers.close(1)
        self._copies.close()
        self.store.close()


class Bound:
    """The least that somebody does who checks what he reads, in memory that is there."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._bytes = memoryview(tensor.view(torch.uint8).numpy()).cast("B")
        self._ready = torch.zeros_like(tensor)

    def hash(self) -> None:
        checksum(self._bytes)

    def load(self, path: str, into: torch.Tensor) -> None:
        view = memoryview(self._ready.view(torch.uint8).numpy()).cast("B")
        with open(path, "rb", buffering=0) as file:
            file.seek(os.stat(path).st_size - len(view))
            done = 0
            while done < len(view):
                done += file.readinto(view[done:]) or len(view)
        checksum(view)
        into.copy_(self._ready)


def seconds(action: Callable[[], object]) -> Spent:
    start, used = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - start, time.process_time() - used


def added(*spent: Spent) -> Spent:
    return sum(wall for wall, _ in spent), sum(cpu for _, cpu in spent)


def saved(side: Example | Managed, names: list[str], tensor: torch.Tensor) -> tuple[Spent, Spent]:
    """Until the call returns, and until all is on disk."""
    returned = seconds(lambda: [side.save(name, tensor) for name in names])
    return returned, added(returned, seconds(side.settle))


def measured(directory: str, megabytes: float, budget_seconds: float, *, cold: bool) -> Times:
    """Rounds of save and load of both sides in turns, each side first in every other round."""
    rows = max(1, round(megabytes * MEGABYTE / (2 * WIDTH)))
    tensor = torch.rand(rows, WIDTH).to(torch.bfloat16)
    into = torch.empty_like(tensor)
    root = tempfile.mkdtemp(prefix="bench-", dir=directory)
    os.makedirs(f"{root}/example")
    ours, bound = Managed(root, 4 * tensor.nbytes + MEGABYTE), Bound(tensor)
    sides: dict[str, Example | Managed] = {"theirs": Example(f"{root}/example"), "ours": ours}
    times: Times = {}
    end, number = time.monotonic() + budget_seconds, 0
    try:
        while number < LEAST_ROUNDS or time.monotonic() < end:
            number += 1
            spent: dict[tuple[str, str], Spent] = {}
            for key in sorted(sides, reverse=bool(number % 2)):
                name = f"{key}-{number}"
                spent["returns", key], spent["save", key] = saved(sides[key], [name], tensor)
                if AT_ONCE * tensor.nbytes <= PENDING_BYTES:
                    spent["saves", key] = saved(sides[key], [f"{name}-{one}" for one in range(AT_ONCE)], tensor)[1]
                if cold:
                    drop_from_cache(root)
                into.zero_()
                spent |= {(kind, key): value for kind, value in sides[key].load(name, into).items()}
                if not torch.equal(into, tensor):
                    raise SystemExit(f"{key} lost bytes")
            path = ours.store.path(f"ours-{number}")
            if cold:
                drop_from_cache(root)
            spent["load", "bound"] = seconds(lambda: bound.load(path, into))  # noqa: B023 - called at once
            spent["save", "bound"] = added(spent["save", "theirs"], seconds(bound.hash))
            for which, value in spent.items():
                times.setdefault(which, []).append(value)
            for path in removable(root):
                os.unlink(path)
    finally:
        ours.close()
        shutil.rmtree(root)
    return {which: values[2:] for which, values in times.items()}  # the first two warm up


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
    walls = {which: statistics.median(wall for wall, _ in values) for which, values in times.items()}
    used = {which: statistics.median(cpu for _, cpu in values) for which, values in times.items()}
    for kind in KINDS:
        ours, theirs, bound = ((kind, side) for side in ("ours", "theirs", "bound"))
        if ours not in times:
            continue
        size = megabytes * (AT_ONCE if kind == "saves" else 1)
        least = f"{size / walls[bound]:>8.0f}{used[theirs] / used[bound]:>7.2f}x" if bound in times else " " * 16
        print(
            f"{directory:<20}{megabytes:>6} {kind:<10}{size / walls[ours]:>9.0f}{size / walls[theirs]:>8.0f}"
            f"{walls[theirs] / walls[ours]:>8.2f}x{used[theirs] / used[ours]:>8.2f}x{least}{len(times[ours]):>8}",
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
    columns = f"{'ours':>9}{'theirs':>8}{'ratio':>9}{'CPU':>9}{'bound':>8}{'CPU':>8}{'rounds':>8}"
    print(f"{'MB/s':<20}{'MB':>6} {'':<10}{columns}")
    for directory in given.directory or ["/dev/shm"]:
        for size in given.sizes.split(","):
            report(directory, float(size), measured(directory, float(size), given.seconds, cold=given.cold))


if __name__ == "__main__":
    main()
