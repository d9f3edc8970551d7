from __future__ import annotations

import os
from pathlib import Path

from epd.collector.files import KernelFiles
from epd.collector.foreign import LIMIT, Foreign


def counted(path: Path, name: str, *, entries: int = 0) -> Foreign:
    fd = os.open(path, os.O_RDONLY)
    foreign = Foreign(files=KernelFiles(), device=os.fstat(fd).st_dev, entries=entries)
    foreign.count(name, dir_fd=fd)
    os.close(fd)
    return foreign


def test_counts_a_tree_without_following(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"x" * 4096)
    (tmp_path / "a" / "link").symlink_to("/")
    directories = sum((tmp_path / name).stat().st_blocks for name in ("a", "a/b")) * 512

    found = counted(tmp_path, "a")

    assert (found.entries, found.used_bytes) == (4, directories + 4096)


def test_work_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for number in range(10):
        (tmp_path / "a" / str(number)).touch()

    assert counted(tmp_path, "a", entries=LIMIT - 3).entries == LIMIT


def test_what_is_gone_counts_once(tmp_path: Path) -> None:
    assert (counted(tmp_path, "absent").entries, counted(tmp_path, "absent").used_bytes) == (1, 0)
