"""Entries that are torn, damaged, of another shape, copied or no files at all: readers refuse them."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from epd.connector import layout
from epd.connector.store import Expectation, Published, Reason, Record, Rejected, Store
from unit.connector.stores import (
    NAME,
    PAYLOAD,
    SHAPE,
    VERSION,
    entry,
    error_of,
    fetched,
    opened,
    prepared,
    reason,
    temporaries,
    usable,
)
from unit.connector.watched_files import WatchedFiles, failing, no_descriptor_leaks


def test_an_entry_cut_anywhere_is_refused_and_written_again(tmp_path: Path) -> None:
    made = prepared(tmp_path)
    made.publish(NAME, PAYLOAD, SHAPE)
    whole = entry(tmp_path).read_bytes()
    for length in range(len(whole)):
        entry(tmp_path).write_bytes(whole[:length])
        assert reason(tmp_path) == (Reason.TORN if length else Reason.EMPTY)
        assert made.publish(NAME, PAYLOAD, SHAPE) == Published(24, already=False)
        assert entry(tmp_path).read_bytes() == whole


def test_an_entry_with_any_byte_changed_is_refused_or_gives_its_payload(tmp_path: Path) -> None:
    prepared(tmp_path).publish(NAME, PAYLOAD, SHAPE)
    whole = entry(tmp_path).read_bytes()
    for at, mask in itertools.product(range(len(whole)), (0x01, 0x20, 0xFF)):
        entry(tmp_path).write_bytes(whole[:at] + bytes([whole[at] ^ mask]) + whole[at + 1 :])
        assert usable(tmp_path) in (PAYLOAD, *Reason)
        if at >= len(whole) - len(PAYLOAD):
            assert usable(tmp_path) == Reason.CHECKSUM


def test_an_entry_with_zeros_for_its_payload_is_written_again(tmp_path: Path) -> None:
    """As a power loss leaves it: of the right length, with a good header."""
    made = prepared(tmp_path)
    made.publish(NAME, PAYLOAD, SHAPE)
    whole = entry(tmp_path).read_bytes()
    entry(tmp_path).write_bytes(whole[: -len(PAYLOAD)] + bytes(len(PAYLOAD)))
    assert made.publish(NAME, PAYLOAD, SHAPE) == Published(24, already=False)
    assert entry(tmp_path).read_bytes() == whole


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rows": 2}, Reason.ROWS),
        ({"width": 5}, Reason.WIDTH),
        ({"dtype": "F32"}, Reason.DTYPE),
        ({"identifier": "another"}, Reason.ABSENT),
    ],
)
def test_an_entry_that_does_not_fit_the_request(tmp_path: Path, changes: dict[str, Any], expected: Reason) -> None:
    prepared(tmp_path).publish(NAME, PAYLOAD, SHAPE)
    wanted = {"identifier": NAME, "rows": 3, "width": 4, "dtype": "BF16"} | changes
    assert reason(tmp_path, Expectation(**wanted)) == expected
    with pytest.raises(Rejected, match=expected.value):
        opened(tmp_path).measure(Expectation(**wanted))


def test_an_entry_copied_from_another_place(tmp_path: Path) -> None:
    made = prepared(tmp_path)
    made.publish("other", PAYLOAD, SHAPE)
    entry(tmp_path).parent.mkdir(exist_ok=True)
    shutil.copy(made.path("other"), entry(tmp_path))
    assert reason(tmp_path) == Reason.IDENTIFIER
    later = Store(str(tmp_path), "v1-m-ba9876543210", stamp_seconds=1)
    later.prepare(Record(version="v1-m-ba9876543210", claim="ns/claim", layout="Managed", created=""))
    later.publish(NAME, PAYLOAD, SHAPE)
    shutil.copy(later.path(NAME), entry(tmp_path))
    assert reason(tmp_path) == Reason.VERSION


def made_directory(path: Path) -> None:
    path.mkdir()


def made_link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def made_pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("make", [made_directory, made_link, made_pipe])
def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path, make: Any) -> None:
    made = prepared(tmp_path)
    entry(tmp_path).parent.mkdir()
    make(entry(tmp_path))
    with no_descriptor_leaks():
        assert reason(tmp_path) == Reason.NOT_REGULAR
    if make is made_directory:
        assert error_of(made).reason == Reason.NOT_REGULAR
    else:
        made.publish(NAME, PAYLOAD, SHAPE)
        assert fetched(tmp_path) == PAYLOAD
    assert temporaries(tmp_path) == []


@pytest.mark.parametrize("level", [VERSION, f"{VERSION}/{layout.entry_name(NAME)[0]}"])
def test_nothing_is_written_through_a_link_that_leads_out_of_the_root(tmp_path: Path, level: str) -> None:
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    root.mkdir()
    made = prepared(root)
    if level == VERSION:
        (root / VERSION).rmdir()
        (outside / layout.entry_name(NAME)[0]).mkdir()
    (root / level).symlink_to(outside)
    assert error_of(made).reason == Reason.NOT_REGULAR
    assert [path for path in outside.rglob("*") if path.is_file()] == []


def test_a_file_where_a_shard_should_be(tmp_path: Path) -> None:
    made = prepared(tmp_path)
    entry(tmp_path).parent.write_text("")
    assert reason(tmp_path) == Reason.NOT_REGULAR
    assert error_of(made).reason == Reason.NOT_REGULAR


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOENT, Reason.ABSENT),
        (errno.EACCES, Reason.UNREADABLE),
        (errno.EPERM, Reason.UNREADABLE),
        (errno.ESTALE, Reason.STALE),
        (errno.EIO, Reason.IO),
        (errno.ETIMEDOUT, Reason.IO),
    ],
)
def test_why_an_entry_cannot_be_opened(tmp_path: Path, number: int, expected: Reason) -> None:
    prepared(tmp_path).publish(NAME, PAYLOAD, SHAPE)
    assert reason(tmp_path, files=failing(0, number)) == expected


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_entry_of_another_user_that_only_he_may_read(tmp_path: Path) -> None:
    prepared(tmp_path).publish(NAME, PAYLOAD, SHAPE)
    entry(tmp_path).chmod(0o600)
    for directory in (entry(tmp_path).parent, *entry(tmp_path).parent.parents):
        if directory.is_relative_to(tmp_path.parent.parent):
            directory.chmod(0o755)
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        os._exit(usable(tmp_path) != Reason.UNREADABLE)
    assert os.waitpid(child, 0)[1] == 0


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    prepared(tmp_path).publish(NAME, PAYLOAD, SHAPE)
    size = entry(tmp_path).stat().st_size
    reads = itertools.count()

    def shrink(number: int, name: str, args: tuple[Any, ...]) -> None:
        if name == "preadv" and next(reads) == 1:  # the first reads the header
            os.truncate(entry(tmp_path), size - 1)

    assert reason(tmp_path, files=WatchedFiles(shrink)) == Reason.TORN
