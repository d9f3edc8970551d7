from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from epd.collector.files import Files, KernelFiles
from epd.collector.ledger import Ledger
from epd.collector.pace import Pace
from epd.collector.result import Cause, Spared
from epd.collector.trash import Purge, are_entries, is_ours, version_of
from unit.collector.tree import DEAD, Tree, Wrapped

NAME = f"{DEAD}.n1"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def purge(tree: Tree, *, files: Files | None = None, rate: float = 1e9, seconds: float = 10.0) -> tuple[bool, Ledger]:
    pace = Pace(rate, clock=lambda: tree.now, sleep=tree.sleep, stopping=lambda: False)
    pace.begin(seconds)
    ledger = Ledger()
    fd = os.open(tree.path, os.O_RDONLY)
    try:
        return Purge(files or KernelFiles(), ledger, pace).purge(NAME, dir_fd=fd), ledger
    finally:
        os.close(fd)


def test_both_layouts_go(tree: Tree) -> None:
    tree.entry(NAME, "a")
    tree.file(f"{NAME}/ab/.tmpx")
    tree.example(NAME, "id")
    tree.example(NAME, "nested/id")
    (tree.path / NAME / "bare").mkdir()

    gone, ledger = purge(tree)

    assert (gone, os.listdir(tree.path), ledger.removed) == (True, [], {Cause.DEAD_VERSION: 4})
    assert ledger.freed == {Cause.DEAD_VERSION: 4 * 4096}


def test_13_a_directory_with_something_in_it_stays(tree: Tree) -> None:
    tree.entry(NAME, "a")
    kept = tree.file(f"{NAME}/ab/.nfs000123")

    gone, ledger = purge(tree)

    assert (gone, kept.exists(), ledger.spared[Spared.FOREIGN], dict(ledger.errors)) == (False, True, 1, {})


def test_07_a_pinned_file_frees_nothing(tree: Tree) -> None:
    os.link(tree.entry(NAME, "a"), tree.path / "pin")

    gone, ledger = purge(tree)

    assert (gone, ledger.freed[Cause.DEAD_VERSION], (tree.path / "pin").stat().st_size) == (True, 0, 4096)


def test_17_another_collector_in_the_same_directory_is_no_error(tree: Tree) -> None:
    for number in range(10):
        tree.entry(NAME, str(number))

    def unlink(path: str, **kwargs: Any) -> None:
        os.unlink(path, **kwargs)
        raise FileNotFoundError(errno.ENOENT, "the other one was faster")

    gone, ledger = purge(tree, files=Wrapped(unlink=unlink))

    assert (gone, dict(ledger.errors), dict(ledger.removed)) == (True, {}, {Cause.DEAD_VERSION: 0})


def test_spent_slice_is_resumed(tree: Tree) -> None:
    for number in range(300):
        tree.entry(NAME, str(number))

    gone, ledger = purge(tree, rate=64.0, seconds=1.5)
    assert not gone
    assert 0 < ledger.removed[Cause.DEAD_VERSION] < 300

    left = 300 - ledger.removed[Cause.DEAD_VERSION]
    gone, ledger = purge(tree)
    assert (gone, ledger.removed[Cause.DEAD_VERSION]) == (True, left)


def test_02_what_is_no_file_of_a_connector_stays(tree: Tree) -> None:
    shard = tree.entry(NAME, "a").parent
    link, pipe, directory = (shard / f"{digit * 64}.safetensors" for digit in "123")
    link.symlink_to(tree.file("outside"))
    os.mkfifo(pipe)
    directory.mkdir()
    kept = [link, pipe, tree.file(f"{directory.relative_to(tree.path)}/model.bin"), shard / "model.safetensors"]
    kept[-1].touch()

    gone, ledger = purge(tree)

    assert (gone, ledger.removed, dict(ledger.errors)) == (False, {Cause.DEAD_VERSION: 1}, {})
    assert [os.path.lexists(path) for path in kept] == [True] * 4
    assert ledger.spared == {Spared.FOREIGN: 4}


@pytest.mark.parametrize("number", [errno.EISDIR, errno.EBUSY])
def test_02_what_is_put_in_the_place_of_a_file_after_the_listing_stays(tree: Tree, number: int) -> None:
    kept = tree.entry(NAME, "a")
    tree.entry(NAME, "b")

    gone, ledger = purge(tree, files=Wrapped(unlink=failing(os.unlink, kept.name, number)))

    assert (gone, kept.exists(), ledger.removed) == (False, True, {Cause.DEAD_VERSION: 1})
    assert (ledger.spared, dict(ledger.errors)) == ({Spared.FOREIGN: 1}, {})


def test_one_that_fails_does_not_stop_the_rest(tree: Tree) -> None:
    entries = [tree.file(f"{NAME}/00/{number:064x}.safetensors") for number in range(300)]
    kept = entries[150]

    gone, ledger = purge(tree, files=Wrapped(unlink=failing(os.unlink, kept.name, errno.EIO)))

    assert (gone, [path for path in entries if path.exists()]) == (False, [kept])
    assert (ledger.removed, dict(ledger.errors)) == ({Cause.DEAD_VERSION: 299}, {("unlink", "EIO"): 1})


def test_where_a_directory_tells_no_types_one_that_fails_does_not_stop_the_rest(tree: Tree) -> None:
    entries = [tree.file(f"{NAME}/00/{number:064x}.safetensors") for number in range(100)]
    kept = entries[50]

    class Untyped:
        """An entry whose type takes a system call, which may fail."""

        def __init__(self, entry: os.DirEntry[str]) -> None:
            self.name, self._entry = entry.name, entry

        def is_file(self, *, follow_symlinks: bool) -> bool:
            return self._ask() and self._entry.is_file(follow_symlinks=follow_symlinks)

        def is_dir(self, *, follow_symlinks: bool) -> bool:
            return self._ask() and self._entry.is_dir(follow_symlinks=follow_symlinks)

        def _ask(self) -> bool:
            if self.name == kept.name:
                raise OSError(errno.EIO, "stat")
            return True

    @contextmanager
    def scandir(path: int) -> Iterator[Iterator[Untyped]]:
        with os.scandir(path) as found:
            yield map(Untyped, found)

    gone, ledger = purge(tree, files=Wrapped(scandir=scandir))

    assert (gone, [path for path in entries if path.exists()]) == (False, [kept])
    assert (ledger.removed, dict(ledger.errors)) == ({Cause.DEAD_VERSION: 99}, {("stat", "EIO"): 1})


def test_small_versions_are_told_exactly_and_large_ones_by_a_sample(tree: Tree) -> None:
    looks: list[str] = []

    def stat(path: str, **kwargs: Any) -> os.stat_result:
        looks.append(path)
        return os.stat(path, **kwargs)

    def looked() -> int:
        return len([path for path in looks if path != "encoder_cache.safetensors"])

    for number in range(64):
        tree.file(f"{NAME}/00/{number:064x}.safetensors", size=4096 * (1 + number % 3))
    _, ledger = purge(tree, files=Wrapped(stat=stat))
    assert (ledger.freed, looked()) == ({Cause.DEAD_VERSION: 4096 * (22 * 1 + 21 * 2 + 21 * 3)}, 64)

    looks.clear()
    for number in range(3200):
        tree.file(f"{NAME}/00/{number:064x}.safetensors", size=4096)
    _, ledger = purge(tree, files=Wrapped(stat=stat))
    assert (ledger.freed, looked()) == ({Cause.DEAD_VERSION: 3200 * 4096}, 100)


HEXADECIMAL = st.text("09af", min_size=63, max_size=65)
NAMES = st.one_of(
    HEXADECIMAL.map(lambda digits: f"{digits}.safetensors"),
    HEXADECIMAL,
    st.text("0aAg.\n\udc80", min_size=1, max_size=80),
    st.just("0" * 64 + ".safetensors"),
    st.just("0" * 64 + ".safetensors.safetensors"),
)


@given(st.lists(NAMES, max_size=4))
@example(["0" * 63 + ".safetensors", "0" * 65 + ".safetensors"])
@example([".safetensors", "0" * 64])
@example(["0" * 64 + ".s0f0t0nsors"])
def test_02_names_are_told_together_as_one_by_one(found: list[str]) -> None:
    assert are_entries(found) == (found != [] and all(is_ours(name, in_shard=True) for name in found))


def failing(call: Callable[..., Any], name: str, number: int) -> Callable[..., Any]:
    """Return `call`, that fails for one name."""

    def wrapped(path: str, **kwargs: Any) -> Any:
        if path == name:
            raise OSError(number, os.strerror(number), path)
        return call(path, **kwargs)

    return wrapped


@pytest.mark.parametrize(
    ("name", "version"),
    [(NAME, DEAD), (DEAD, None), (f"{DEAD}.", None), ("lost+found", None), ("../x.y", None)],
)
def test_version_of(name: str, version: str | None) -> None:
    assert version_of(name) == version


def test_is_ours() -> None:
    entry = f"{'a' * 64}.safetensors"

    assert is_ours(entry, in_shard=True)
    assert not is_ours(entry, in_shard=False)
    assert is_ours("encoder_cache.safetensors", in_shard=False)
    assert is_ours(".tmpabc", in_shard=False)
    assert not is_ours("model.safetensors", in_shard=True)
