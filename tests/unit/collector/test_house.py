from __future__ import annotations

import errno
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from epd.collector.files import Files, KernelFiles
from epd.collector.house import PARTS, open_housekeeping, open_parts, open_root
from epd.collector.ledger import Ledger
from unit.collector.tree import Wrapped


def opened(path: Path, *, make: bool, files: Files | None = None) -> tuple[set[str], Ledger]:
    files, ledger = files or KernelFiles(), Ledger()
    with ExitStack() as stack:
        root = stack.enter_context(open_root(files, str(path)))
        house = stack.enter_context(open_housekeeping(files, root, make=make))
        open_parts(files, house, stack, ledger, make=make)
        return set(house.parts), ledger


def test_makes_what_is_missing_for_the_group(tmp_path: Path) -> None:
    umask = os.umask(0o077)
    try:
        parts, _ = opened(tmp_path, make=True)
    finally:
        os.umask(umask)

    assert parts == set(PARTS)
    made = [tmp_path / ".epd-gc", *(tmp_path / ".epd-gc" / part for part in PARTS)]
    assert {path.stat().st_mode & 0o777 for path in made} == {0o770}


def test_a_volume_that_decides_modes_by_itself_is_used_all_the_same(tmp_path: Path) -> None:
    def refused(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.EPERM, "not here")

    umask = os.umask(0o077)
    try:
        assert opened(tmp_path, make=True, files=Wrapped(fchmod=refused))[0] == set(PARTS)
    finally:
        os.umask(umask)


def test_19_makes_only_the_clocks_part_in_a_dry_run(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        opened(tmp_path, make=False)
    (tmp_path / ".epd-gc").mkdir()

    assert opened(tmp_path, make=False)[0] == {"probe"}
    assert os.listdir(tmp_path / ".epd-gc") == ["probe"]


def test_18_on_a_full_disk_what_is_there_serves(tmp_path: Path) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        opened(tmp_path, make=True, files=Wrapped(mkdir=full))
    (tmp_path / ".epd-gc" / "trash").mkdir(parents=True)

    parts, ledger = opened(tmp_path, make=True, files=Wrapped(mkdir=full))
    assert parts == {"trash"}
    assert dict(ledger.errors) == {("open", "ENOSPC"): len(PARTS) - 1}


def test_01_a_part_that_is_a_symlink_is_not_used(tmp_path: Path) -> None:
    (tmp_path / ".epd-gc").mkdir()
    (tmp_path / ".epd-gc" / "trash").symlink_to("/tmp")

    assert opened(tmp_path, make=True)[0] == set(PARTS) - {"trash"}
