"""Any call to the file system fails, or its process is killed at it: no torn entry, no leak, and a reason."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from epd.connector import layout
from epd.connector.store import Published, Reason, Rejected, Store, StoreError
from unit.connector.stores import (
    ERRORS,
    NAME,
    PAYLOAD,
    RECORD,
    SHAPE,
    VERSION,
    entry,
    error_of,
    fetched,
    opened,
    outcome,
    prepared,
    temporaries,
    usable,
)
from unit.connector.watched_files import WatchedFiles, failing, no_descriptor_leaks


@pytest.mark.parametrize("error", [*ERRORS, errno.EPERM, errno.EEXIST], ids=errno.errorcode.get)
@pytest.mark.parametrize("found", ["nothing", "a bad entry", "a good entry", "no version"])
def test_a_publish_of_which_any_call_fails(tmp_path: Path, error: int, found: str) -> None:
    def situation(name: str, files: WatchedFiles) -> tuple[Path, Store]:
        root = tmp_path / name
        root.mkdir()
        made = prepared(root)
        if found != "nothing":
            made.publish(NAME, PAYLOAD, SHAPE)
        if found == "a bad entry":
            os.truncate(entry(root), 100)
        made = prepared(root, files)
        if found == "no version":
            shutil.rmtree(root / VERSION)
            shutil.rmtree(root / layout.HOUSEKEEPING)
        return root, made

    counted = WatchedFiles()
    situation("counted", counted)[1].publish(NAME, PAYLOAD, SHAPE)
    for at in range(len(counted.calls)):
        files = failing(at, error)
        root, made = situation(f"{at}", files)
        with no_descriptor_leaks():
            published = outcome(lambda made=made: made.publish(NAME, PAYLOAD, SHAPE))
        assert temporaries(root) == [] or files.calls[at] == "unlink"
        if isinstance(published, Published) or found == "a good entry":
            assert usable(root) == PAYLOAD
        else:
            assert isinstance(published, StoreError)
            assert usable(root) in (PAYLOAD, Reason.ABSENT, Reason.TORN)


@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
def test_a_prepare_of_which_any_call_fails_can_be_repeated(tmp_path: Path, error: int) -> None:
    counted = WatchedFiles()
    (tmp_path / "counted").mkdir()
    opened(tmp_path / "counted", counted).prepare(RECORD)
    for at in range(len(counted.calls)):
        root = tmp_path / f"{at}"
        root.mkdir()
        files = failing(at, error)
        made = opened(root, files)
        with no_descriptor_leaks(), suppress(OSError):
            made.prepare(RECORD)
        assert temporaries(root) == [] or files.calls[at] == "unlink"
        made.prepare(RECORD)
        record = root / layout.HOUSEKEEPING / layout.VERSIONS / f"{VERSION}.json"
        assert record.read_bytes() == RECORD.encode()
        assert (root / VERSION).is_dir()


@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
def test_a_fetch_of_which_any_call_fails(tmp_path: Path, error: int) -> None:
    prepared(tmp_path).publish(NAME, PAYLOAD, SHAPE)
    counted = WatchedFiles()
    fetched(tmp_path, files=counted)
    for at in range(len(counted.calls)):
        with no_descriptor_leaks():
            got = outcome(lambda at=at: fetched(tmp_path, files=failing(at, error)))
        assert got == PAYLOAD or isinstance(got, Rejected)


@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
def test_what_may_fail_silently_does(tmp_path: Path, error: int) -> None:
    made = prepared(tmp_path)
    made.publish(NAME, PAYLOAD, SHAPE)
    made.write_widths({"image": 4})
    assert not opened(tmp_path, failing(0, error)).holds(NAME)
    assert not opened(tmp_path, failing(0, error)).stamp(NAME)
    for at in range(2):
        assert opened(tmp_path, failing(at, error)).read_widths() == {}


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES, errno.ESTALE, errno.EIO])
def test_the_error_of_the_volume_is_told(tmp_path: Path, error: int) -> None:
    def hook(number: int, name: str, args: tuple[Any, ...]) -> None:
        if name == "pwrite":
            raise OSError(error, os.strerror(error))

    failure = error_of(prepared(tmp_path, WatchedFiles(hook)))
    assert failure.errno == error
    assert failure.reason in (Reason.FULL, Reason.READ_ONLY, Reason.UNREADABLE, Reason.STALE, Reason.IO)


def test_an_engine_killed_at_any_call_leaves_no_torn_entry(tmp_path: Path) -> None:
    counted = WatchedFiles()
    (tmp_path / "counted").mkdir()
    prepared(tmp_path / "counted", counted).publish(NAME, PAYLOAD, SHAPE)
    for at in range(len(counted.calls)):
        root = tmp_path / f"{at}"
        root.mkdir()

        def die(number: int, name: str, args: tuple[Any, ...], at: int = at) -> None:
            if number == at:
                os._exit(9)

        child = os.fork()
        if child == 0:
            prepared(root, WatchedFiles(die)).publish(NAME, PAYLOAD, SHAPE)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        assert usable(root) in (PAYLOAD, Reason.ABSENT)
        prepared(root).publish(NAME, PAYLOAD, SHAPE)
        assert fetched(root) == PAYLOAD
