from __future__ import annotations

import errno
import itertools
import mmap
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epd.connector import local
from epd.connector.entry import Shape
from epd.connector.local import PREFIX, BudgetFull, Copy, LocalCopies

PAGE = mmap.PAGESIZE
HOLDER = """
import sys
from epd.connector.entry import Shape
from epd.connector.local import LocalCopies
copies = LocalCopies(sys.argv[1], budget_bytes=1 << 20)
copy = copies.allocate(Shape(dtype="F64", rows=1, width=100))
print(copy.path, flush=True)
sys.stdin.read()
"""


def pages(count: int) -> Shape:
    """A shape of whole pages."""
    return Shape(dtype="F64", rows=count, width=PAGE // 8)


def directories(root: Path) -> list[Path]:
    return sorted(root.glob(f"{PREFIX}*"))


def inode(copy: Copy) -> int:
    return os.stat(copy.path).st_ino


def test_other_processes_read_a_copy_by_its_path(tmp_path: Path) -> None:
    copies = LocalCopies(str(tmp_path), budget_bytes=4 * PAGE)
    copy = copies.allocate(Shape(dtype="BF16", rows=2, width=3))
    copy.buffer[:] = b"abcdefghijkl"
    assert Path(copy.path).read_bytes()[: copy.nbytes] == b"abcdefghijkl"
    assert os.stat(copy.path).st_size == PAGE
    assert os.stat(copy.path).st_mode & 0o077 == 0


def test_the_budget_is_never_exceeded(tmp_path: Path) -> None:
    copies = LocalCopies(str(tmp_path), budget_bytes=4 * PAGE)
    held = [copies.allocate(pages(2)), copies.allocate(pages(1))]
    with pytest.raises(BudgetFull):
        copies.allocate(pages(2))
    assert copies.used_bytes == copies.reserved_bytes == 3 * PAGE
    copies.release(held[0])
    assert copies.used_bytes == PAGE
    assert copies.allocate(pages(3)).nbytes == 3 * PAGE


def test_a_part_of_a_page_counts_as_a_page(tmp_path: Path) -> None:
    copies = LocalCopies(str(tmp_path), budget_bytes=PAGE)
    copies.allocate(Shape(dtype="BF16", rows=1, width=1))
    with pytest.raises(BudgetFull):
        copies.allocate(Shape(dtype="BF16", rows=1, width=1))


def test_memory_is_used_again_under_another_path(tmp_path: Path) -> None:
    copies = LocalCopies(str(tmp_path), budget_bytes=16 * PAGE)
    first = copies.allocate(pages(3))
    earlier = inode(first)
    copies.release(first)
    assert (copies.used_bytes, copies.reserved_bytes) == (0, 3 * PAGE)
    again = copies.allocate(pages(2))
    assert inode(again) == earlier
    assert again.path != first.path
    assert not Path(first.path).exists()
    assert len(again.buffer) == again.nbytes == 2 * PAGE


def test_memory_far_too_large_is_not_used_again(tmp_path: Path) -> None:
    copies = LocalCopies(str(tmp_path), budget_bytes=32 * PAGE)
    first = copies.allocate(pages(3))
    earlier = inode(first)
    copies.release(first)
    assert inode(copies.allocate(pages(1))) != earlier


def test_idle_memory_makes_room(tmp_path: Path) -> None:
    copies = LocalCopies(str(tmp_path), budget_bytes=8 * PAGE)
    held = [copies.allocate(pages(1)) for _ in range(2)]
    for copy in held:
        copies.release(copy)
    assert copies.reserved_bytes == 2 * PAGE
    copies.allocate(pages(7))
    assert copies.reserved_bytes == 8 * PAGE
    copies.allocate(pages(1))


def test_a_quarter_of_the_budget_is_kept_at_most(tmp_path: Path) -> None:
    copies = LocalCopies(str(tmp_path), budget_bytes=8 * PAGE)
    for copy in [copies.allocate(pages(1)) for _ in range(8)]:
        copies.release(copy)
    assert copies.reserved_bytes == 2 * PAGE
    assert len(list(directories(tmp_path)[0].iterdir())) == 2


def test_a_buffer_still_in_use_is_not_used_again(tmp_path: Path) -> None:
    copies = LocalCopies(str(tmp_path), budget_bytes=16 * PAGE)
    copy = copies.allocate(pages(1))
    hanging = copy.buffer[10:20]  # as of a thread that reads into it
    copies.release(copy)
    assert copies.reserved_bytes == 0
    other = copies.allocate(pages(1))
    hanging[:] = b"too late.."
    assert bytes(other.buffer) == bytes(PAGE)


def test_a_released_buffer_refuses_writes(tmp_path: Path) -> None:
    copies = LocalCopies(str(tmp_path), budget_bytes=16 * PAGE)
    copy = copies.allocate(pages(1))
    copies.release(copy)
    with pytest.raises(ValueError, match="released"):
        copy.buffer[0] = 1


def test_a_worker_that_has_a_copy_open_keeps_its_bytes_when_the_engine_closes(tmp_path: Path) -> None:
    copies = LocalCopies(str(tmp_path), budget_bytes=16 * PAGE)
    copy = copies.allocate(pages(1))
    copy.buffer[:4] = b"data"
    fd = os.open(copy.path, os.O_RDONLY)
    copies.close()
    assert os.pread(fd, 4, 0) == b"data"
    os.close(fd)


def test_a_copy_is_released_once(tmp_path: Path) -> None:
    copies = LocalCopies(str(tmp_path), budget_bytes=4 * PAGE)
    copy = copies.allocate(pages(1))
    copies.release(copy)
    copies.release(copy)
    assert copies.used_bytes == 0
    assert copies.reserved_bytes == PAGE


def test_shared_memory_smaller_than_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = LocalCopies(str(tmp_path), budget_bytes=64 * PAGE)
    for copy in [copies.allocate(pages(1)) for _ in range(3)]:
        copies.release(copy)

    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(BudgetFull):
        copies.allocate(pages(8))
    assert copies.reserved_bytes == 0
    assert list(directories(tmp_path)[0].iterdir()) == []


def test_nothing_is_left_after_close(tmp_path: Path) -> None:
    copies = LocalCopies(str(tmp_path), budget_bytes=16 * PAGE)
    held, idle = copies.allocate(pages(1)), copies.allocate(pages(1))
    copies.release(idle)
    copies.close()
    copies.close()
    assert directories(tmp_path) == []
    assert copies.reserved_bytes == 0
    held.buffer[:4] = b"safe"  # whoever still reads into it does no harm
    copies.release(held)
    with pytest.raises(BudgetFull):
        copies.allocate(pages(1))


def holder(root: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    )


def test_what_a_killed_process_left_is_removed_by_the_next_start(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        assert process.stdout is not None
        path = Path(process.stdout.readline().strip())
        LocalCopies(str(tmp_path), budget_bytes=PAGE).close()
        assert path.exists()  # it lives
        process.send_signal(signal.SIGKILL)
    assert path.exists()
    copies = LocalCopies(str(tmp_path), budget_bytes=PAGE)
    assert not path.parent.exists()
    assert len(directories(tmp_path)) == 1
    copies.close()


def test_what_is_not_ours_is_left(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / f"{PREFIX}file").write_text("a file")
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "other")
    (tmp_path / f"{PREFIX}deep" / "directory").mkdir(parents=True)
    LocalCopies(str(tmp_path), budget_bytes=PAGE).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{PREFIX}deep",
        f"{PREFIX}file",
        f"{PREFIX}link",
        "other",
    ]


def test_a_directory_swept_before_it_is_locked_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count()
    real = os.open

    def swept(path: str, flags: int, mode: int = 0o777) -> int:
        fd = real(path, flags, mode)
        if path.endswith(f"{PREFIX}0"):
            os.rmdir(path)
        return fd

    monkeypatch.setattr(local.os, "open", swept)
    copies = LocalCopies(str(tmp_path), budget_bytes=PAGE, nonce=lambda: f"{next(numbers)}")
    assert directories(tmp_path) == [tmp_path / f"{PREFIX}1"]
    copies.allocate(pages(1))


def test_shared_memory_without_locks_is_an_error_at_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_lock", lambda fd: False)
    with pytest.raises(OSError, match="No locks available"):
        LocalCopies(str(tmp_path), budget_bytes=PAGE)
    assert directories(tmp_path) == []


def test_no_shared_memory_is_an_error_at_start(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LocalCopies(str(tmp_path / "absent"), budget_bytes=PAGE)


@given(st.lists(st.one_of(st.integers(1, 5), st.integers(-4, -1)), max_size=40))
def test_any_order_of_allocations_and_releases(tmp_path_factory: pytest.TempPathFactory, steps: list[int]) -> None:
    """Positive: allocate so many pages. Negative: release the copy at that place."""
    copies = LocalCopies(str(tmp_path_factory.mktemp("copies")), budget_bytes=12 * PAGE)
    held: list[tuple[Copy, bytes]] = []
    for number, step in enumerate(steps):
        if step > 0:
            try:
                copy = copies.allocate(pages(step))
            except BudgetFull:
                assert sum(copy.nbytes for copy, _ in held) + step * PAGE > 6 * PAGE
                continue
            copy.buffer[:] = bytes([number]) * copy.nbytes
            held.append((copy, bytes([number])))
        elif -step <= len(held):
            copies.release(held.pop(step)[0])
        assert copies.reserved_bytes <= 12 * PAGE
        assert copies.used_bytes <= copies.reserved_bytes
        assert all(bytes(copy.buffer) == mark * copy.nbytes for copy, mark in held)
        assert all(Path(copy.path).read_bytes()[: copy.nbytes] == mark * copy.nbytes for copy, mark in held)
    copies.close()


def test_threads_share_the_budget(tmp_path: Path) -> None:
    copies = LocalCopies(str(tmp_path), budget_bytes=8 * PAGE)
    spoiled: list[Copy] = []

    def use(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(100):
            try:
                copy = copies.allocate(pages(chance.randint(1, 3)))
            except BudgetFull:
                continue
            copy.buffer[:] = bytes([seed]) * copy.nbytes
            if bytes(copy.buffer) != bytes([seed]) * copy.nbytes or copies.reserved_bytes > 8 * PAGE:
                spoiled.append(copy)
            copies.release(copy)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert spoiled == []
    assert copies.used_bytes == 0
