"""Pins keep an entry's bytes while it is read, and go however that ends."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from epd.connector.store import Pin, Reason, Rejected
from unit.connector.stores import ERRORS, NAME, PAYLOAD, SHAPE, WANTED, entry, fetched, opened, outcome, prepared
from unit.connector.watched_files import WatchedFiles, failing, no_descriptor_leaks


def test_pins_keep_an_entry_that_a_collector_removes(tmp_path: Path) -> None:
    made = prepared(tmp_path)
    made.publish(NAME, PAYLOAD, SHAPE)
    pin = made.pin(WANTED)
    entry(tmp_path).unlink()
    assert Path(pin.path).read_bytes()[pin.parsed.offset :] == PAYLOAD
    made.unpin(pin)
    assert not Path(pin.path).exists()
    made.unpin(pin)


def test_a_bad_entry_is_not_pinned(tmp_path: Path) -> None:
    made = prepared(tmp_path)
    made.publish(NAME, PAYLOAD, SHAPE)
    with entry(tmp_path).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
    with pytest.raises(Rejected, match="checksum"):
        made.pin(WANTED)
    assert entry(tmp_path).stat().st_nlink == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errno.EPERM, Reason.UNREADABLE),
        (errno.EMLINK, Reason.IO),
        (errno.EXDEV, Reason.IO),
        (errno.ENOENT, Reason.ABSENT),
    ],
)
def test_a_volume_that_links_nothing_gives_no_pins(tmp_path: Path, error: int, expected: Reason) -> None:
    def hook(number: int, name: str, args: tuple[Any, ...]) -> None:
        if name == "link":
            raise OSError(error, os.strerror(error))

    made = prepared(tmp_path, WatchedFiles(hook))
    made.publish(NAME, PAYLOAD, SHAPE)
    with pytest.raises(Rejected) as rejected:
        made.pin(WANTED)
    assert rejected.value.reason == expected


@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
def test_a_pin_of_which_any_call_fails(tmp_path: Path, error: int) -> None:
    counted = WatchedFiles()
    (tmp_path / "counted").mkdir()
    made = prepared(tmp_path / "counted", counted)
    made.publish(NAME, PAYLOAD, SHAPE)
    counted.calls.clear()
    made.pin(WANTED)
    for at in range(len(counted.calls)):
        root = tmp_path / f"{at}"
        root.mkdir()
        prepared(root).publish(NAME, PAYLOAD, SHAPE)
        made = opened(root, failing(at, error))
        with no_descriptor_leaks():
            pinned = outcome(lambda made=made: made.pin(WANTED))
        assert isinstance(pinned, (Pin, Rejected))
        assert entry(root).stat().st_nlink == (2 if isinstance(pinned, Pin) else 1)
        made.close()
        assert entry(root).stat().st_nlink == 1
        assert fetched(root) == PAYLOAD


@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
def test_letting_go_never_fails(tmp_path: Path, error: int) -> None:
    def hook(number: int, name: str, args: tuple[Any, ...]) -> None:
        raise OSError(error, os.strerror(error))

    prepared(tmp_path).publish(NAME, PAYLOAD, SHAPE)
    files = WatchedFiles(hook)
    files.armed = False
    made = opened(tmp_path, files)
    pin = made.pin(WANTED)
    other = made.pin(WANTED)
    files.armed = True
    made.unpin(pin)
    made.close()
    assert Path(other.path).exists()  # left to the collector
