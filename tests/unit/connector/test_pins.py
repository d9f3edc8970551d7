from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from epd.connector import layout
from epd.connector.pins import Pins

LONG_AGO = 1_000_000_000


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    path = tmp_path / "entry"
    path.write_text("data")
    return path


def pins_of(root: Path, pod: str = "pod", files: Any = os) -> Pins:
    numbers = itertools.count()
    return Pins(str(root), pod, files=files, nonce=lambda: f"nonce-{next(numbers)}")


def below(root: Path) -> list[str]:
    base = root / layout.HOUSEKEEPING / layout.PINS
    return sorted(str(path.relative_to(base)) for path in base.rglob("*") if path.is_file())


def heartbeat(root: Path) -> Path:
    return root / layout.HOUSEKEEPING / layout.PINS / "pod" / "nonce-0" / layout.HEARTBEAT


def test_without_pins_there_is_no_directory(tmp_path: Path) -> None:
    pins = pins_of(tmp_path)
    pins.heartbeat()
    pins.close()
    assert list(tmp_path.iterdir()) == []


def test_each_pin_is_a_link_of_its_own(tmp_path: Path, entry: Path) -> None:
    pins = pins_of(tmp_path)
    links = [pins.link(str(entry)), pins.link(str(entry))]
    assert below(tmp_path) == ["pod/nonce-0/1", "pod/nonce-0/2", "pod/nonce-0/heartbeat"]
    assert entry.stat().st_nlink == 3
    pins.unlink(links[0])
    pins.unlink(links[0])
    assert entry.stat().st_nlink == 2


def test_what_is_gone_cannot_be_pinned(tmp_path: Path) -> None:
    pins = pins_of(tmp_path)
    with pytest.raises(FileNotFoundError):
        pins.link(str(tmp_path / "absent"))
    assert below(tmp_path) == ["pod/nonce-0/heartbeat"]


def test_the_heartbeat_beats(tmp_path: Path, entry: Path) -> None:
    pins = pins_of(tmp_path)
    pins.link(str(entry))
    os.utime(heartbeat(tmp_path), (LONG_AGO, LONG_AGO))
    pins.heartbeat()
    assert heartbeat(tmp_path).stat().st_mtime > LONG_AGO


@pytest.mark.parametrize("beats", [True, False])
def test_an_engine_taken_for_dead_pins_again(tmp_path: Path, entry: Path, beats: bool) -> None:
    pins = pins_of(tmp_path)
    pins.link(str(entry))
    shutil.rmtree(tmp_path / layout.HOUSEKEEPING / layout.PINS)
    if beats:
        pins.heartbeat()
    pins.link(str(entry))
    assert below(tmp_path) == ["pod/nonce-0/2" if beats else "pod/nonce-0/3", "pod/nonce-0/heartbeat"]


def test_close_removes_what_is_ours_and_nothing_else(tmp_path: Path, entry: Path) -> None:
    pins, others = pins_of(tmp_path), Pins(str(tmp_path), "pod", files=os, nonce=lambda: "other")
    pins.link(str(entry))
    others.link(str(entry))
    pins.close()
    pins.close()
    assert below(tmp_path) == ["pod/other/1", "pod/other/heartbeat"]
    others.close()
    assert not (tmp_path / layout.HOUSEKEEPING / layout.PINS / "pod").exists()
    assert entry.read_text() == "data"


def test_a_symbolic_link_is_linked_itself(tmp_path: Path, entry: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(entry)
    assert Path(pins_of(tmp_path).link(str(link))).is_symlink()
