from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from epd.collector.files import KernelFiles
from epd.collector.ledger import Ledger
from epd.collector.records import Record, Records, parse, publish
from unit.collector.tree import Wrapped

V = "v1-a-00000000000a"
RECORD = Record(version=V, claim="ns/a", layout="Managed", inputs={"model": "m"}, created="c")


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_record_is_published_once(fd: int, tmp_path: Path) -> None:
    files, ledger = KernelFiles(), Ledger()

    assert publish(files, fd, RECORD, lambda: "n")
    assert not publish(files, fd, Record(version=V, claim="ns/b", layout="Example"), lambda: "n")
    assert Records().load(files, fd, frozenset({"ns/a"}), ledger) == {V: RECORD}
    assert Records().load(files, fd, frozenset({"ns/b"}), ledger) == {}
    assert (os.listdir(tmp_path), dict(ledger.errors)) == ([f"{V}.json"], {})
    assert (tmp_path / f"{V}.json").stat().st_mode & 0o777 == 0o660


@pytest.mark.parametrize(
    "changed",
    [{"format": 2}, {"version": "v1-b-00000000000b"}, {"claim": None}, {"layout": "Other"}, {"inputs": []}],
)
def test_02_a_record_that_is_not_understood_makes_nothing_ours(changed: dict[str, Any]) -> None:
    assert parse(RECORD.encode(), V) == RECORD
    assert parse(RECORD.encode() | changed, V) is None


def test_02_only_regular_files_of_sound_names_are_records(fd: int, tmp_path: Path) -> None:
    content = json.dumps(RECORD.encode())
    (tmp_path / "real").write_text(content)
    (tmp_path / f"{V}.json").symlink_to(tmp_path / "real")
    (tmp_path / f"{V}.widths.json").write_text(content)
    (tmp_path / "x.json").write_text(content)
    os.mkfifo(tmp_path / "v1-b-00000000000b.json")

    assert Records().load(KernelFiles(), fd, frozenset({"ns/a"}), Ledger()) == {}


def test_unchanged_records_are_not_read_again(fd: int, tmp_path: Path) -> None:
    opened: list[str] = []

    def counting(name: str, *args: Any, **kwargs: Any) -> int:
        opened.append(name)
        return os.open(name, *args, **kwargs)

    (tmp_path / f"{V}.json").write_text(json.dumps(RECORD.encode()))
    records, files = Records(), Wrapped(open=counting)
    for _ in range(3):
        assert records.load(files, fd, frozenset({"ns/a"}), Ledger()) == {V: RECORD}

    assert opened == [f"{V}.json"]
