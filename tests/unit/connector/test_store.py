from __future__ import annotations

import errno
import itertools
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from epd.connector import layout, store
from epd.connector.entry import ITEM_BYTES
from epd.connector.store import Expectation, Pin, Published, Reason, Record, Rejected, Shape, Store, StoreError
from unit.connector.watched_files import WatchedFiles, before, failing, no_descriptor_leaks

VERSION = "v1-m-0123456789ab"
RECORD = Record(
    version=VERSION, claim="ns/claim", layout="Managed", inputs={"model": "m"}, created="2026-01-01T00:00:00Z"
)
SHAPE = Shape(dtype="BF16", rows=3, width=4)
PAYLOAD = bytes(range(SHAPE.nbytes))
OTHER = bytes(reversed(PAYLOAD))
NAME = "../a picture"
WANTED = Expectation(identifier=NAME, rows=3, width=4, dtype="BF16")
ERRORS = [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES, errno.ESTALE, errno.EIO, errno.ENOENT, errno.ENOTDIR]
LONG_AGO = 1_000_000_000


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def opened(root: Path, files: Any = os, **changes: Any) -> Store:
    """A store without a record yet, whose names a test can foretell."""
    numbers = itertools.count()
    given = {"stamp_seconds": 60.0, "pod": "pod", "nonce": lambda: f"{next(numbers)}", "clock": Clock()} | changes
    return Store(str(root), VERSION, files=files, **given)


def prepared(root: Path, files: Any = os, **changes: Any) -> Store:
    """A store with record and directory; files are watched from then on."""
    made = opened(root, files, **changes)
    if files is os:
        made.prepare(RECORD)
    else:
        files.armed = False
        made.prepare(RECORD)
        files.armed = True
    return made


def outcome(action: Callable[[], object]) -> object:
    """What an action returns, or how it was refused."""
    try:
        return action()
    except (Rejected, StoreError) as refusal:
        return refusal


def fetched(root: Path, expectation: Expectation = WANTED, files: Any = os) -> bytes:
    buffers: list[bytearray] = []

    def into(shape: Shape) -> memoryview:
        buffers.append(bytearray(shape.nbytes))
        return memoryview(buffers[0])

    opened(root, files).fetch(expectation, into)
    return bytes(buffers[0])


def reason(root: Path, expectation: Expectation = WANTED, files: Any = os) -> Reason:
    with pytest.raises(Rejected) as rejected:
        fetched(root, expectation, files)
    return rejected.value.reason


def usable(root: Path) -> bytes | Reason:
    """What a reader gets: the payload, or why not."""
    try:
        return fetched(root)
    except Rejected as rejected:
        return rejected.reason


def entry(root: Path) -> Path:
    return Path(opened(root).path(NAME))


def temporaries(root: Path) -> list[Path]:
    return sorted(root.rglob(f"{layout.TEMPORARY_PREFIX}*"))


def error_of(made: Store, payload: bytes = PAYLOAD, shape: Shape = SHAPE) -> StoreError:
    with pytest.raises(StoreError) as error:
        made.publish(NAME, payload, shape)
    return error.value


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


def test_a_good_entry_is_left_and_stamped(tmp_path: Path) -> None:
    prepared(tmp_path).publish(NAME, PAYLOAD, SHAPE)
    os.utime(entry(tmp_path), (LONG_AGO, LONG_AGO))
    earlier = entry(tmp_path).stat()
    assert prepared(tmp_path).publish(NAME, OTHER, SHAPE) == Published(24, already=True)
    assert entry(tmp_path).stat().st_ino == earlier.st_ino
    assert entry(tmp_path).stat().st_mtime > LONG_AGO
    assert fetched(tmp_path) == PAYLOAD


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


def test_widths_are_added_to_those_of_other_encoders(tmp_path: Path) -> None:
    made = prepared(tmp_path)
    assert made.read_widths() == {}
    made.write_widths({"image": 4})
    opened(tmp_path).write_widths({"video": 8})
    assert made.read_widths() == {"image": 4, "video": 8}


def test_a_name_that_is_no_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a version"):
        Store(str(tmp_path), "../v1-m-0123456789ab", stamp_seconds=1)
