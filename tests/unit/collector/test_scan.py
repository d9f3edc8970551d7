from __future__ import annotations

import errno
import os
import time
import tracemalloc
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from epd.collector.files import Files, KernelFiles
from epd.collector.histogram import Histogram
from epd.collector.ledger import Ledger
from epd.collector.scan import Scanner, Tally
from unit.collector.tree import LIVE, Tree, Wrapped


def scan(tree: Tree, *, files: Files | None = None, stop: bool = False) -> tuple[Tally, Scanner, list[int]]:
    """Scan, and also return how many entries are in the histograms of our connector and of vLLM's."""
    fd = os.open(tree.path / LIVE, os.O_RDONLY)
    scanner = Scanner(files or KernelFiles(), os.fstat(fd).st_dev, Ledger(), lambda: stop)
    both = [Histogram(time.time()) for _ in range(2)]
    try:
        return scanner.scan(fd, *both), scanner, [sum(histogram.counts) for histogram in both]
    finally:
        os.close(fd)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_managed(tree: Tree) -> None:
    entry = tree.entry(LIVE, "a", age=100)
    pinned = tree.entry(LIVE, "b", age=200, size=8192)
    os.link(pinned, tree.path / "pin")
    tree.file(f"{LIVE}/ab/.tmpx", age=9000, size=4096)
    tree.file(f"{LIVE}/ab/README", size=4096)
    tree.file(f"{LIVE}/notes.txt", size=4096)
    (tree.path / LIVE / "ff").symlink_to(tree.path)
    (tree.path / LIVE / "ab" / f"{'c' * 64}.safetensors").symlink_to(entry)
    tree.file(f"{LIVE}/ac/{'d' * 64}.safetensors/x")

    tally, scanner, counted = scan(tree)

    assert (tally.entries, tally.used_bytes, tally.pinned) == (2, 4096 + 8192 + 4096, 1)
    assert (tally.temporaries, tally.foreign, tally.complete, counted) == (1, 5, True, [1, 0])
    assert tally.newest == entry.stat().st_mtime
    assert dict(scanner.ledger.errors) == {}


def test_example(tree: Tree) -> None:
    tree.example(LIVE, "mm_hash", age=100)
    bare = tree.path / LIVE / "missed"
    bare.mkdir()
    tree.aged(bare, 50)
    tree.file(f"{LIVE}/loose")

    tally, scanner, counted = scan(tree)

    assert (tally.entries, tally.used_bytes, tally.foreign, counted) == (1, 4096, 1, [0, 1])
    assert tally.newest == bare.stat().st_mtime
    assert dict(scanner.ledger.errors) == {}


def test_a_version_that_changed_its_connector_holds_both(tree: Tree) -> None:
    tree.entry(LIVE, "a")
    tree.example(LIVE, "mm_hash", size=8192)

    tally, _, counted = scan(tree)

    assert (tally.entries, tally.used_bytes, tally.foreign, counted) == (2, 4096 + 8192, 0, [1, 1])


def test_one_stat_per_entry(tree: Tree) -> None:
    for number in range(100):
        tree.entry(LIVE, str(number))
    looked: list[Any] = []

    def stat(path: Any, **kwargs: Any) -> os.stat_result:
        looked.append(path)
        return os.stat(path, **kwargs)

    scan(tree, files=Wrapped(stat=stat))

    assert len(looked) == len(set(looked)) == 100


def test_what_vanishes_meanwhile_is_no_error_and_what_cannot_be_read_is(tree: Tree) -> None:
    gone, broken = tree.entry(LIVE, "a"), tree.entry(LIVE, "b")

    def stat(path: str, **kwargs: Any) -> os.stat_result:
        if path in (gone.name, broken.name):
            raise OSError(errno.ENOENT if path == gone.name else errno.EIO, "")
        return os.stat(path, **kwargs)

    tally, scanner, _ = scan(tree, files=Wrapped(stat=stat))

    assert (tally.entries, tally.complete, dict(scanner.ledger.errors)) == (0, False, {("stat", "EIO"): 1})


def test_a_stopped_scan_says_so(tree: Tree) -> None:
    tree.entry(LIVE, "a")

    tally, _, _ = scan(tree, stop=True)

    assert (tally.entries, tally.complete) == (0, False)


def test_20_memory_does_not_grow_with_entries(tree: Tree) -> None:
    """A directory that yields names without end would be scanned in the memory of one chunk of them."""
    (tree.path / LIVE / "00").mkdir(parents=True)
    one = os.stat(tree.entry(LIVE, "a"))

    class Name:
        def __init__(self, number: int) -> None:
            self.name = f"{number:064x}.safetensors"

    def peak(count: int) -> int:
        def scandir(fd: int) -> Any:
            shard = os.readlink(f"/proc/self/fd/{fd}").endswith("/00")
            return nullcontext(Name(number) for number in range(count)) if shard else os.scandir(fd)

        def stat(path: str, **kwargs: Any) -> os.stat_result:
            return one if path.startswith("0000") else os.stat(path, **kwargs)

        tracemalloc.start()
        tally, _, _ = scan(tree, files=Wrapped(scandir=scandir, stat=stat))
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert tally.entries == count + 1
        return highest

    assert peak(60_000) < 1.1 * peak(20_000)
