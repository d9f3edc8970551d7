from __future__ import annotations

import errno
import os
from contextlib import ExitStack
from pathlib import Path

from epd.collector import survey as surveys
from epd.collector.files import Files, KernelFiles
from epd.collector.house import open_housekeeping, open_parts
from epd.collector.inputs import Policy
from epd.collector.ledger import Ledger
from epd.collector.scan import Scanner
from epd.collector.survey import Survey
from epd.collector.watermark import Ours
from unit.collector.tree import DEAD, LIVE, Tree, Wrapped, policy

OURS = {LIVE, DEAD}


def taken(tree: Tree, told: Policy, files: Files | None = None) -> Survey:
    files, ledger = files or KernelFiles(), Ledger()
    with ExitStack() as stack:
        root = os.open(tree.path, os.O_RDONLY)
        stack.callback(os.close, root)
        house = stack.enter_context(open_housekeeping(files, root, make=True))
        open_parts(files, house, stack, ledger, make=True)
        scanner = Scanner(files, house.device, ledger, lambda: False)
        return surveys.take(scanner, house, OURS, told, now=10**10, monotonic=5.0)


def test_counts_versions_trash_and_foreign_data_apart(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.entry(LIVE, "a")
    tree.example(DEAD, "b", size=8192)
    tree.example(f".epd-gc/trash/{DEAD}.n", "c")
    tree.entry(f".epd-gc/trash/{LIVE}.n", "c")
    tree.file("photo.jpg")
    tree.file(f"{LIVE}/notes")

    survey = taken(tree, policy(max_sizes=((frozenset({LIVE}), 1), (frozenset({DEAD}), 1))))

    assert survey.used_by_version == {LIVE: 4096, DEAD: 8192}
    assert survey.ours == Ours(used_bytes=5 * 4096, entries=4, trash_bytes=8192, trash_entries=2)
    assert (survey.foreign_entries, survey.foreign_bytes, survey.scanned) == (2, 8192, 4)
    # the Example layout is not evicted from, so no cut-off may count on it
    assert [sum(group.counts) for _, group in survey.groups] == [1, 0]
    assert (sum(survey.everything.counts), survey.complete, survey.taken) == (1, True, 5.0)


def test_example_counts_where_it_may_be_evicted(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.example(DEAD, "b")

    assert sum(taken(tree, policy(evict_example=True)).everything.counts) == 1


def test_what_goes_is_taken_out_of_every_count(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    stamp = tree.entry(LIVE, "a").stat().st_mtime
    survey = taken(tree, policy(max_sizes=((frozenset({LIVE}), 1),)))

    survey.gone(LIVE, stamp, 4096)

    assert (survey.ours, sum(survey.everything.counts)) == (Ours(used_bytes=0, entries=0), 0)
    assert sum(survey.groups[0][1].sizes) == 0


def test_what_cannot_be_opened_is_not_gone(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.entry(LIVE, "a")
    real = KernelFiles()

    def refused(name: str, *, dir_fd: int) -> int:
        if name == LIVE:
            raise OSError(errno.EACCES, "no")
        return real.open_directory(name, dir_fd=dir_fd)

    survey = taken(tree, policy(), Wrapped(open_directory=refused))

    assert (survey.used_by_version, survey.complete) == ({LIVE: 0}, False)


def test_key_changes_with_what_the_histograms_are_made_for() -> None:
    keys = [
        surveys.key(OURS, policy()),
        surveys.key({LIVE}, policy()),
        surveys.key(OURS, policy(evict_example=True)),
        surveys.key(OURS, policy(max_sizes=((frozenset({LIVE}), 1),))),
    ]

    assert len(set(keys)) == len(keys)
    assert surveys.key(OURS, policy(min_idle=1)) == keys[0]
