"""The file system in memory answers as Linux does: random calls to `os` on tmpfs and to it, every answer alike."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from histories.memory_fs import Files
from histories.memory_tree import BLOCK, Inode, Volume
from histories.twins import Player, Twin, outcome, tree

SEEDS = 800
CALLS = 90


@pytest.fixture
def box() -> Iterator[str]:
    """On tmpfs: `st_blocks` and the answers of a full disk are compared too."""
    old = os.umask(0o022)
    top = tempfile.mkdtemp(prefix="epd-memory-fs-", dir="/dev/shm")
    yield top
    os.umask(old)
    shutil.rmtree(top)


@pytest.mark.parametrize("block", range(8))
def test_random_calls_get_the_answers_of_the_real_os(box: str, block: int) -> None:
    for seed in range(block * SEEDS // 8, (block + 1) * SEEDS // 8):
        top = f"{box}/{seed}"
        twin = Twin(top)
        player = Player(seed, twin)
        history = []
        for number in range(CALLS):
            choice, real, ours = player.step()
            history.append((choice, real, ours))
            assert ours == real, (seed, number, history[-3:])
            if number % 10 == 9:
                real_tree = dict(tree(os.listdir, os.stat, f"{top}"))
                our_tree = dict(tree(twin.files.listdir, twin.files.stat, "/."))
                real_tree = {f"/.{path.removeprefix(top)}": found for path, found in real_tree.items()}
                assert our_tree == real_tree, (seed, number)
        twin.close()
        shutil.rmtree(top)


def make(**options: Any) -> tuple[Files, Volume]:
    clock = iter(range(1, 10**6))
    volume = Volume(lambda: next(clock), **options)
    return Files(volume.root), volume


def test_a_full_volume_writes_what_fits_and_then_says_so() -> None:
    files, volume = make(capacity_blocks=2, full=errno.EDQUOT)
    fd = files.open("/a", os.O_CREAT | os.O_WRONLY)
    assert files.write(fd, bytes(3 * BLOCK)) == 2 * BLOCK
    with pytest.raises(OSError, match="quota") as caught:
        files.write(fd, b"x")
    assert caught.value.errno == errno.EDQUOT
    assert files.statvfs("/").f_bavail == 0
    files.unlink("/a")
    assert volume.used_blocks == 2  # still open
    files.close(fd)
    assert (volume.used_blocks, files.statvfs("/").f_bavail) == (0, 2)


def test_inodes_run_out_and_come_back() -> None:
    files, _ = make(capacity_inodes=2)
    files.mkdir("/a")
    assert outcome(files.mkdir, "/b") == "ENOSPC"
    number = files.stat("/a").st_ino
    files.rmdir("/a")
    files.mkdir("/b")
    assert files.stat("/b").st_ino == number  # numbers are used again, as on ext4


def test_a_read_only_volume_refuses_every_change() -> None:
    files, volume = make()
    files.mkdir("/d")
    fd = files.open("/a", os.O_CREAT | os.O_RDWR)
    volume.readonly = True
    refused = [
        outcome(files.open, "/b", os.O_CREAT | os.O_WRONLY),
        outcome(files.open, "/a", os.O_WRONLY),
        outcome(files.write, fd, b"x"),
        outcome(files.mkdir, "/e"),
        outcome(files.rmdir, "/d"),
        outcome(files.unlink, "/a"),
        outcome(files.link, "/a", "/c"),
        outcome(files.rename, "/a", "/c"),
        outcome(files.utime, "/a"),
    ]
    assert refused == ["EROFS"] * 9


def test_names_do_not_cross_volumes_and_open_directory_does_not_follow() -> None:
    files, volume = make()
    other = Volume(volume.now)
    for name in ("/m", "/d", "/d/e"):
        files.mkdir(name)
    files.mount("/m", other.root)
    files.symlink("d", "/s")
    files.open("/f", os.O_CREAT)
    files.open("/m/g", os.O_CREAT)
    base = files.open("/", os.O_DIRECTORY)
    assert outcome(files.rename, "/f", "/m/f") == "EXDEV"
    assert outcome(files.link, "/f", "/m/f") == "EXDEV"
    assert outcome(files.rmdir, "/m") == "EBUSY"
    assert outcome(files.rename, "/m", "/n") == "EBUSY"
    assert files.stat("/m").st_dev != files.stat("/").st_dev
    assert files.listdir("/m/../m") == ["g"]
    said = {name: outcome(files.open_directory, name, dir_fd=base) for name in ("s", "m", "..", "f", "x", "/d", "s/e")}
    assert said == {
        "s": "ELOOP",
        "m": "EXDEV",
        "..": "EXDEV",
        "f": "ENOTDIR",
        "x": "ENOENT",
        "/d": "EXDEV",
        "s/e": "EXDEV",
    }
    assert files.listdir(files.open_directory("d", dir_fd=base)) == ["e"]


def test_a_scan_streams_while_names_come_and_go() -> None:
    files, _ = make()
    for number in range(100):
        files.mkdir(f"/{number}")
    seen = []
    with files.scandir("/") as entries:
        for entry in entries:
            seen.append(entry.name)
            if len(seen) == 20:
                for number in range(100):
                    if f"{number}" not in seen:
                        files.rmdir(f"/{number}")
    # What had been read ahead shows up although it is gone; nothing shows up twice.
    assert 20 < len(seen) < 40
    assert len(set(seen)) == len(seen)


def test_a_dead_process_gives_back_what_only_it_held() -> None:
    files, volume = make()
    before = volume.used_inodes
    fd = files.open("/a", os.O_CREAT | os.O_WRONLY)
    files.write(fd, b"x")
    files.unlink("/a")
    files.die()
    assert (volume.used_inodes, volume.used_blocks, files.open_descriptors) == (before, 0, 0)
    assert isinstance(volume.root, Inode)


def test_another_client_finds_a_removed_file_stale_where_the_server_keeps_no_open_files() -> None:
    files, volume = make(stale_when_unlinked=True)
    fd = files.open("/a", os.O_CREAT | os.O_RDWR)
    Files(volume.root).unlink("/a")
    assert outcome(files.pread, fd, 1, 0) == "ESTALE"
