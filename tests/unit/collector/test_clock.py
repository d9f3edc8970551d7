from __future__ import annotations

import errno
import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from epd.collector.clock import ServerClock
from epd.collector.house import House, open_housekeeping, open_parts
from epd.collector.ledger import Ledger
from unit.collector.tree import Wrapped


class Server:
    """A file system whose clock is set by the test."""

    def __init__(self, stack: ExitStack, path: Path) -> None:
        self.now = 5000.0
        self.files = Wrapped(utime=self.utime)
        root = os.open(path, os.O_RDONLY)
        stack.callback(os.close, root)
        self.house: House = stack.enter_context(open_housekeeping(self.files, root, make=True))
        open_parts(self.files, self.house, stack, Ledger(), make=True)

    def utime(self, name: str, times: None, **kwargs: Any) -> None:
        os.utime(name, (self.now, self.now), **kwargs)


def test_reads_the_servers_time_not_this_machines(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = Server(stack, tmp_path)
        reading = ServerClock("me", lambda: 0.0).read(server.files, server.house, min_idle=60)

    assert (reading.now, reading.reliable, reading.steady, reading.skew) == (5000.0, True, float("inf"), 0.0)
    assert abs(time.time() - reading.now) > 1e6


@pytest.mark.parametrize(
    ("elapsed", "monotonic", "reliable"),
    [(100.0, 100.0, True), (129.0, 100.0, True), (131.0, 100.0, False), (-1.0, 0.0, False), (60.0, 100.0, False)],
)
def test_10_a_jump_is_found(tmp_path: Path, elapsed: float, monotonic: float, reliable: bool) -> None:
    now = [0.0]
    with ExitStack() as stack:
        server = Server(stack, tmp_path)
        clock = ServerClock("me", lambda: now[0])
        clock.read(server.files, server.house, min_idle=60)
        server.now += elapsed
        now[0] = monotonic
        reading = clock.read(server.files, server.house, min_idle=60)
        server.now += 10
        now[0] += 10
        later = clock.read(server.files, server.house, min_idle=60)

    assert (reading.reliable, reading.skew) == (reliable, elapsed - monotonic)
    assert (later.reliable, later.steady) == (True, float("inf") if reliable else 10.0)


def test_18_without_room_for_a_probe_the_owners_file_serves(tmp_path: Path) -> None:
    def full(*args: Any, **kwargs: Any) -> int:
        raise OSError(errno.ENOSPC, "full")

    with ExitStack() as stack:
        server = Server(stack, tmp_path)
        (tmp_path / ".epd-gc" / "owner.json").write_text("{}")
        files = Wrapped(utime=server.utime, open=full)
        reading = ServerClock("me", lambda: 0.0).read(files, server.house, min_idle=60)

    assert reading.now == 5000.0
    assert os.listdir(tmp_path / ".epd-gc" / "probe") == []
