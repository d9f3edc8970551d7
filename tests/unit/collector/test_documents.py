from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from epd.collector.documents import publish, read, timestamp
from epd.collector.files import KernelFiles
from unit.collector.tree import Wrapped


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_published_once_unless_replaced(fd: int, tmp_path: Path) -> None:
    files = KernelFiles()

    assert publish(files, "a", {"n": 1}, dir_fd=fd, nonce=lambda: "x")
    assert not publish(files, "a", {"n": 2}, dir_fd=fd, nonce=lambda: "x")
    assert read(files, "a", dir_fd=fd) == {"n": 1}
    assert publish(files, "a", {"n": 3}, dir_fd=fd, nonce=lambda: "x", replace=True)
    assert read(files, "a", dir_fd=fd) == {"n": 3}
    assert os.listdir(tmp_path) == ["a"]


def test_short_writes_are_continued(fd: int) -> None:
    files = Wrapped(write=lambda fd, data: os.write(fd, data[:1]))

    publish(files, "a", {"n": 12345}, dir_fd=fd, nonce=lambda: "x")

    assert read(KernelFiles(), "a", dir_fd=fd) == {"n": 12345}


def test_nothing_half_written_is_left(fd: int, tmp_path: Path) -> None:
    def full(*args: Any) -> int:
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        publish(Wrapped(write=full), "a", {}, dir_fd=fd, nonce=lambda: "x")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_volume_without_links_and_modes_is_written_all_the_same(fd: int, tmp_path: Path, number: int) -> None:
    def refused(*args: Any, **kwargs: Any) -> None:
        raise OSError(number, "not here")

    files = Wrapped(link=refused, fchmod=refused)
    assert publish(files, "a", {"n": 1}, dir_fd=fd, nonce=lambda: "x")
    assert not publish(files, "a", {"n": 2}, dir_fd=fd, nonce=lambda: "x")
    assert read(files, "a", dir_fd=fd) == {"n": 1}
    assert os.listdir(tmp_path) == ["a"]


def test_nothing_half_written_is_left_without_links_either(fd: int, tmp_path: Path) -> None:
    written = []

    def refused(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.EPERM, "not here")

    def second_fails(fd: int, data: bytes) -> int:
        written.append(data)
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "full")
        return os.write(fd, data)

    with pytest.raises(OSError, match="full"):
        publish(Wrapped(link=refused, write=second_fails), "a", {}, dir_fd=fd, nonce=lambda: "x")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"1", b"\xff", b"[" * 10**5, b" " * (1 << 20) + b"{}"])
def test_what_is_no_json_object_or_too_long_is_none(fd: int, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)

    assert read(KernelFiles(), "a", dir_fd=fd) is None


def test_symlinks_are_not_followed_and_fifos_do_not_hang(fd: int, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("{}")
    (tmp_path / "link").symlink_to("a")
    os.mkfifo(tmp_path / "fifo")

    assert read(KernelFiles(), "fifo", dir_fd=fd) is None
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        read(KernelFiles(), "link", dir_fd=fd)


def test_timestamp() -> None:
    assert timestamp(0) == "1970-01-01T00:00:00+00:00"
