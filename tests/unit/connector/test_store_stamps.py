"""Stamps: use is noted in the server's time, not too often, and never through a link."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from epd.connector import store
from epd.connector.store import Published
from unit.clocks import Clock
from unit.connector.stores import LONG_AGO, NAME, OTHER, PAYLOAD, SHAPE, entry, fetched, opened, prepared
from unit.connector.watched_files import WatchedFiles


def test_a_good_entry_is_left_and_stamped(tmp_path: Path) -> None:
    prepared(tmp_path).publish(NAME, PAYLOAD, SHAPE)
    os.utime(entry(tmp_path), (LONG_AGO, LONG_AGO))
    earlier = entry(tmp_path).stat()
    assert prepared(tmp_path).publish(NAME, OTHER, SHAPE) == Published(24, already=True)
    assert entry(tmp_path).stat().st_ino == earlier.st_ino
    assert entry(tmp_path).stat().st_mtime > LONG_AGO
    assert fetched(tmp_path) == PAYLOAD


def test_a_stamp_is_the_servers_time_and_not_repeated_too_early(tmp_path: Path) -> None:
    clock, files = Clock(), WatchedFiles()
    prepared(tmp_path).publish(NAME, PAYLOAD, SHAPE)
    made = opened(tmp_path, files, clock=clock, stamp_seconds=10)
    os.utime(entry(tmp_path), (LONG_AGO, LONG_AGO))
    assert made.stamp(NAME)
    assert entry(tmp_path).stat().st_mtime > LONG_AGO
    clock.now = 9.9
    assert made.stamp(NAME)
    assert files.calls == ["utime"]
    clock.now = 10
    assert made.stamp(NAME)
    assert files.calls == ["utime", "utime"]


def test_a_stamp_that_failed_is_tried_again(tmp_path: Path) -> None:
    made = prepared(tmp_path)
    assert not made.stamp(NAME)
    made.publish(NAME, PAYLOAD, SHAPE)
    entry(tmp_path).unlink()
    assert made.stamp(NAME)  # a publish is a stamp
    other = opened(tmp_path)
    assert not other.stamp(NAME)


def test_a_stamp_does_not_reach_through_a_link(tmp_path: Path) -> None:
    made = prepared(tmp_path)
    target = tmp_path / "target"
    target.write_text("")
    os.utime(target, (LONG_AGO, LONG_AGO))
    entry(tmp_path).parent.mkdir()
    entry(tmp_path).symlink_to(target)
    made.stamp(NAME)
    assert target.stat().st_mtime == LONG_AGO


def test_the_memory_of_stamps_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_STAMPS", 2)
    files = WatchedFiles()
    made = prepared(tmp_path)
    for name in "abc":
        made.publish(name, PAYLOAD, SHAPE)
    made = opened(tmp_path, files)
    for name in "abca":
        made.stamp(name)
    assert files.calls == ["utime"] * 4
    made.stamp("c")
    assert files.calls == ["utime"] * 4
