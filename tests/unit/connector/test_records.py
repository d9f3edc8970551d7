from __future__ import annotations

import errno
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from epd.connector import layout, records
from epd.connector.records import Record
from unit.connector.watched_files import WatchedFiles

VERSION = "v1-m-0123456789ab"
RECORD = Record(
    version=VERSION, claim="ns/claim", layout="Managed", inputs={"model": "m"}, created="2026-01-01T00:00:00Z"
)


def nonces() -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"{next(numbers)}"


def published(root: Path, files: Any = os, record: Record = RECORD) -> bytes:
    records.publish(files, str(root), record, nonces())
    return path(root).read_bytes()


def path(root: Path) -> Path:
    return Path(records.directory(str(root))) / layout.record_name(VERSION)


def files_in(root: Path) -> list[str]:
    return sorted(found.name for found in Path(records.directory(str(root))).iterdir())


def test_a_record_says_whose_version_it_is(tmp_path: Path) -> None:
    assert json.loads(published(tmp_path)) == {
        "format": 1,
        "version": VERSION,
        "claim": "ns/claim",
        "layout": "Managed",
        "inputs": {"model": "m"},
        "created": "2026-01-01T00:00:00Z",
    }
    assert files_in(tmp_path) == [f"{VERSION}.json"]
    assert path(tmp_path).stat().st_mode & 0o777 == layout.FILE_MODE


def test_a_record_is_never_changed(tmp_path: Path) -> None:
    first = published(tmp_path)
    other = Record(version=VERSION, claim="ns/other", layout="Managed", created="")
    assert published(tmp_path, record=other) == first


@pytest.mark.parametrize("torn", [b"", b"\0" * 100, RECORD.encode()[:20], b"[]", b'{"version": "other"}'])
def test_a_record_that_says_nothing_is_replaced(tmp_path: Path, torn: bytes) -> None:
    published(tmp_path)
    path(tmp_path).write_bytes(torn)
    assert published(tmp_path) == RECORD.encode()
    assert files_in(tmp_path) == [f"{VERSION}.json"]


def test_a_record_that_cannot_be_read_is_left(tmp_path: Path) -> None:
    class Unreadable(WatchedFiles):
        def open(self, path: str, flags: int, mode: int) -> int:
            raise PermissionError(errno.EACCES, "no")

    with pytest.raises(PermissionError):
        records.publish(Unreadable(), str(tmp_path), RECORD, nonces())


def test_the_first_of_two_engines_writes_the_record(tmp_path: Path) -> None:
    first = RECORD.encode()

    def other_engine(number: int, name: str, args: tuple[Any, ...]) -> None:
        if name == "link":
            path(tmp_path).write_bytes(first)

    later = Record(version=VERSION, claim="ns/claim", layout="Managed", created="later")
    assert published(tmp_path, WatchedFiles(other_engine), later) == first
    assert files_in(tmp_path) == [f"{VERSION}.json"]


@pytest.mark.parametrize("error", [errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_volume_without_links_and_modes_has_records_too(tmp_path: Path, error: int) -> None:
    def hook(number: int, name: str, args: tuple[Any, ...]) -> None:
        if name in ("link", "fchmod"):
            raise OSError(error if name == "link" else errno.EPERM, "no")

    assert published(tmp_path, WatchedFiles(hook)) == RECORD.encode()
    assert files_in(tmp_path) == [f"{VERSION}.json"]


def test_widths_that_nobody_could_mean_are_not_used(tmp_path: Path) -> None:
    published(tmp_path)
    target = Path(records.directory(str(tmp_path))) / layout.widths_name(VERSION)
    content: dict[str, Any] = {"image": 4, "video": 0, "audio": -1, "other": "4", "flag": True, "half": 1.5}
    target.write_text(json.dumps(content))
    assert records.read_widths(os, str(tmp_path), VERSION) == {"image": 4}


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"[" * 100_000, b"\xff"])
def test_widths_that_cannot_be_read_are_written_anew(tmp_path: Path, content: bytes) -> None:
    published(tmp_path)
    (Path(records.directory(str(tmp_path))) / layout.widths_name(VERSION)).write_bytes(content)
    assert records.read_widths(os, str(tmp_path), VERSION) == {}
    records.write_widths(os, str(tmp_path), VERSION, {"image": 4}, nonces())
    assert records.read_widths(os, str(tmp_path), VERSION) == {"image": 4}


def test_known_widths_are_not_written_again(tmp_path: Path) -> None:
    records.write_widths(os, str(tmp_path), VERSION, {"image": 4}, nonces())
    files = WatchedFiles()
    records.write_widths(files, str(tmp_path), VERSION, {"image": 4}, nonces())
    assert "rename" not in files.calls


def test_a_pipe_in_the_place_of_a_record_does_not_hold_the_reader(tmp_path: Path) -> None:
    os.makedirs(records.directory(str(tmp_path)))
    os.mkfifo(path(tmp_path))
    assert records.load(os, str(path(tmp_path))) is None


@pytest.mark.parametrize("level", [layout.HOUSEKEEPING, f"{layout.HOUSEKEEPING}/{layout.VERSIONS}"])
def test_nothing_is_written_through_a_link_that_leads_out_of_the_root(tmp_path: Path, level: str) -> None:
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    (root / level).parent.mkdir(parents=True)
    (root / level).symlink_to(outside)
    with pytest.raises(NotADirectoryError):
        records.publish(os, str(root), RECORD, nonces())
    assert list(outside.iterdir()) == []
