"""What others do to the root in the middle of a publish: a collector that removes, engines that publish too."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from epd.connector import layout
from epd.connector.store import Published, Reason, Store
from unit.connector.stores import (
    NAME,
    PAYLOAD,
    RECORD,
    SHAPE,
    VERSION,
    entry,
    error_of,
    fetched,
    opened,
    prepared,
    temporaries,
)
from unit.connector.watched_files import before


def test_a_shard_that_a_collector_removes_is_made_again(tmp_path: Path) -> None:
    shard = entry(tmp_path).parent

    def removed() -> None:
        for path in shard.glob("*"):
            path.unlink()
        shard.rmdir()

    made = prepared(tmp_path, before("rename", removed, times=3))
    assert made.publish(NAME, PAYLOAD, SHAPE) == Published(24, already=False)
    assert fetched(tmp_path) == PAYLOAD


def test_a_shard_that_never_stays_ends_the_attempts(tmp_path: Path) -> None:
    shard = entry(tmp_path).parent

    def removed() -> None:
        for path in shard.glob("*"):
            path.unlink()
        shard.rmdir()

    files = before("rename", removed, times=1000)
    assert error_of(prepared(tmp_path, files)).reason == Reason.ABSENT
    assert files.calls.count("rename") == 4  # of five attempts the first found no shard


@pytest.mark.parametrize("call", ["open", "fchmod", "pwrite", "close", "rename"])
def test_a_version_renamed_away_meanwhile_is_made_again_with_its_record(tmp_path: Path, call: str) -> None:
    made = prepared(tmp_path)
    made.publish("other", PAYLOAD, SHAPE)
    entry(tmp_path).parent.mkdir()
    trash = tmp_path / "trash"

    def condemned() -> None:
        (tmp_path / VERSION).rename(trash)
        shutil.rmtree(tmp_path / layout.HOUSEKEEPING)

    assert prepared(tmp_path, before(call, condemned)).publish(NAME, PAYLOAD, SHAPE) == Published(24, already=False)
    assert fetched(tmp_path) == PAYLOAD
    record = tmp_path / layout.HOUSEKEEPING / layout.VERSIONS / f"{VERSION}.json"
    assert record.read_bytes() == RECORD.encode()
    assert not made.holds("other")
    assert [path for path in trash.rglob("*.safetensors") if path.name == entry(tmp_path).name] == []


def test_without_a_record_no_directory_of_a_version_is_made(tmp_path: Path) -> None:
    assert error_of(opened(tmp_path)).reason == Reason.ABSENT
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_is_gone_is_not_made(tmp_path: Path) -> None:
    made = prepared(tmp_path)
    shutil.rmtree(tmp_path)
    assert error_of(made).reason == Reason.ABSENT
    assert not tmp_path.exists()


def test_many_engines_publish_one_entry(tmp_path: Path) -> None:
    stores = [prepared(tmp_path, pod=f"pod-{number}", nonce=lambda number=number: f"{number}") for number in range(8)]
    outcomes: list[Published] = []
    start = threading.Barrier(len(stores))

    def publish(made: Store) -> None:
        start.wait()
        outcomes.append(made.publish(NAME, PAYLOAD, SHAPE))

    threads = [threading.Thread(target=publish, args=(made,)) for made in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == len(stores)
    assert fetched(tmp_path) == PAYLOAD
    assert temporaries(tmp_path) == []
