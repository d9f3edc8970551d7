from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from epd.collector.files import KernelFiles, directory


@pytest.fixture(params=[True, False], ids=["openat2", "fallback"])
def files(request: pytest.FixtureRequest) -> KernelFiles:
    return KernelFiles(openat2=request.param)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "child").mkdir()
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "child")
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_opens_a_child(files: KernelFiles, root: int, tmp_path: Path) -> None:
    with directory(files, "child", dir_fd=root) as fd:
        assert os.path.samestat(os.fstat(fd), os.stat(tmp_path / "child"))
        assert not os.get_inheritable(fd)


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("link", {errno.ELOOP, errno.ENOTDIR}),
        ("file", {errno.ENOTDIR}),
        ("absent", {errno.ENOENT}),
        ("..", {errno.EXDEV}),
        (".", {errno.EXDEV}),
        ("", {errno.EXDEV}),
        ("link/x", {errno.EXDEV}),
        ("/proc", {errno.EXDEV}),
    ],
)
def test_01_opens_nothing_else(files: KernelFiles, root: int, name: str, numbers: set[int]) -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011 (the number is what is told)
        files.open_directory(name, dir_fd=root)
    assert caught.value.errno in numbers


def test_01_opens_no_other_mount(files: KernelFiles) -> None:
    fd = os.open("/", os.O_RDONLY)
    try:
        with pytest.raises(OSError) as caught:  # noqa: PT011 (the number is what is told)
            files.open_directory("proc", dir_fd=fd)
    finally:
        os.close(fd)
    assert caught.value.errno == errno.EXDEV


def test_a_kernel_without_openat2_takes_the_other_way(root: int, monkeypatch: pytest.MonkeyPatch) -> None:
    files = KernelFiles()
    monkeypatch.setattr(files, "_syscall", fails_with(errno.ENOSYS))

    with directory(files, "child", dir_fd=root) as fd:
        assert fd > 0
    with pytest.raises(NotADirectoryError):
        files.open_directory("link", dir_fd=root)


def test_a_rename_that_goes_on_is_not_waited_for(root: int, monkeypatch: pytest.MonkeyPatch) -> None:
    files = KernelFiles()
    monkeypatch.setattr(files, "_syscall", fails_with(errno.EAGAIN))

    with pytest.raises(BlockingIOError):
        files.open_directory("child", dir_fd=root)


def fails_with(number: int) -> Callable[..., int]:
    """Return a system call that fails."""

    def call(*_: object) -> int:
        ctypes.set_errno(number)
        return -1

    return call


def test_01_sets_the_time_of_a_plain_file_only(files: KernelFiles, root: int, tmp_path: Path) -> None:
    (tmp_path / "to-file").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    os.utime(tmp_path / "file", (1, 1))
    for name in ("to-file", "pipe", "absent", "child"):
        with pytest.raises(OSError):  # noqa: PT011 (each refuses in its own way)
            files.utime(name, None, dir_fd=root)
    assert (tmp_path / "file").stat().st_mtime == 1

    files.utime("file", None, dir_fd=root)

    assert (tmp_path / "file").stat().st_mtime > 1
