"""Entries are written and read back: what is published is fetched, and never anything else."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from epd.connector import layout
from epd.connector.entry import ITEM_BYTES
from epd.connector.store import Expectation, Published, Reason, Shape, Store
from unit.connector.stores import NAME, PAYLOAD, SHAPE, VERSION, WANTED, error_of, fetched, opened, prepared
from unit.connector.watched_files import WatchedFiles, no_descriptor_leaks


@pytest.fixture
def narrow_umask() -> Iterator[None]:
    earlier = os.umask(0o077)
    yield
    os.umask(earlier)


def test_what_is_published_is_fetched(tmp_path: Path) -> None:
    made = prepared(tmp_path)
    assert not made.holds(NAME)
    assert made.publish(NAME, PAYLOAD, SHAPE) == Published(24, already=False)
    assert made.holds(NAME)
    assert fetched(tmp_path) == PAYLOAD
    assert made.measure(WANTED).shape == SHAPE


@pytest.mark.parametrize("dtype", sorted(ITEM_BYTES))
def test_every_dtype_comes_back(tmp_path: Path, dtype: str) -> None:
    shape = Shape(dtype=dtype, rows=3, width=4)
    payload = os.urandom(shape.nbytes)
    prepared(tmp_path).publish(NAME, payload, shape)
    assert fetched(tmp_path, Expectation(identifier=NAME, rows=3, width=4, dtype=dtype)) == payload


@pytest.mark.parametrize("rows", [1, 511, 512, 513, 1200, 2047, 2048, 4500])
def test_entries_around_the_size_of_a_chunk_come_back(tmp_path: Path, rows: int) -> None:
    shape = Shape(dtype="BF16", rows=rows, width=1024)  # 512 rows are one chunk, 2048 are hashed beside their writing
    payload = os.urandom(shape.nbytes)
    prepared(tmp_path).publish(NAME, payload, shape)
    assert fetched(tmp_path, Expectation(identifier=NAME, rows=rows, width=1024, dtype="BF16")) == payload


def test_a_long_identifier_comes_back(tmp_path: Path) -> None:
    name = "n" * 100_000
    prepared(tmp_path).publish(name, PAYLOAD, SHAPE)
    assert fetched(tmp_path, Expectation(identifier=name, rows=3, width=4, dtype="BF16")) == PAYLOAD


@pytest.mark.usefixtures("narrow_umask")
def test_a_group_may_use_what_is_made_whatever_the_umask(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    root.chmod(0o2770)  # as fsGroup does; the bit is inherited by what is made below
    made = prepared(root)
    made.publish(NAME, PAYLOAD, SHAPE)
    made.write_widths({"image": 4})
    made.pin(WANTED)
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in root.rglob("*")}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o660}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o2770}


def test_identifiers_never_become_paths(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    made = prepared(root)
    for name in ("/etc/x", "../../x", "a/b", "", ".", "\0", "\ud800"):
        made.publish(name, PAYLOAD, SHAPE)
        assert made.path(name).startswith(f"{root}/{VERSION}/")
    assert [path.name for path in tmp_path.iterdir()] == ["root"]
    assert {path.name for path in root.iterdir()} == {VERSION, layout.HOUSEKEEPING}


def test_reads_that_give_less_than_asked(tmp_path: Path) -> None:
    class ShortReads(WatchedFiles):
        def preadv(self, fd: int, buffers: list[memoryview], offset: int) -> int:
            return os.preadv(fd, [buffers[0][:5]], offset)

    class ShortWrites(WatchedFiles):
        def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
            return os.pwrite(fd, data[:5], offset)

    prepared(tmp_path, ShortWrites()).publish(NAME, PAYLOAD, SHAPE)
    assert fetched(tmp_path, files=ShortReads()) == PAYLOAD


def test_a_write_that_makes_no_progress_ends(tmp_path: Path) -> None:
    class NoWrites(WatchedFiles):
        def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
            return 0

    assert error_of(prepared(tmp_path, NoWrites())).reason == Reason.IO


def test_what_the_buffers_owner_raises_passes_through(tmp_path: Path) -> None:
    class NoRoomError(Exception):
        pass

    def into(shape: Shape) -> memoryview:
        raise NoRoomError

    prepared(tmp_path).publish(NAME, PAYLOAD, SHAPE)
    with no_descriptor_leaks(), pytest.raises(NoRoomError):
        opened(tmp_path).fetch(WANTED, into)
    with no_descriptor_leaks(), pytest.raises(ValueError, match="buffer of 3 bytes"):
        opened(tmp_path).fetch(WANTED, lambda shape: memoryview(bytearray(3)))


@pytest.mark.parametrize(
    ("payload", "shape", "expected"),
    [
        (PAYLOAD[:-1], SHAPE, Reason.TORN),
        (PAYLOAD, Shape(dtype="I64", rows=3, width=1), Reason.DTYPE),
        (b"", Shape(dtype="BF16", rows=0, width=4), Reason.ROWS),
    ],
)
def test_what_no_reader_would_use_is_not_written(
    tmp_path: Path, payload: bytes, shape: Shape, expected: Reason
) -> None:
    made = prepared(tmp_path)
    assert error_of(made, payload, shape).reason == expected
    assert not made.holds(NAME)


def test_widths_are_added_to_those_of_other_encoders(tmp_path: Path) -> None:
    made = prepared(tmp_path)
    assert made.read_widths() == {}
    made.write_widths({"image": 4})
    opened(tmp_path).write_widths({"video": 8})
    assert made.read_widths() == {"image": 4, "video": 8}


def test_a_name_that_is_no_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a version"):
        Store(str(tmp_path), "../v1-m-0123456789ab", stamp_seconds=1)
