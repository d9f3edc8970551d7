from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from histories import play


class Interrupted(subprocess.Popen[bytes]):
    """A worker that plays for ever; its run is stopped while it waits for it."""

    def communicate(self, *_: object, **__: object) -> tuple[bytes, bytes]:
        raise KeyboardInterrupt


def test_a_run_that_is_stopped_ends_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = []

    def spawn(start: int, end: int) -> Interrupted:
        workers.append(Interrupted([sys.executable, "-c", "while True: pass"], stdout=subprocess.PIPE))
        return workers[-1]

    monkeypatch.setattr(play, "spawn", spawn)
    assert play.play_all(0, 3 * play.CHUNK, processes=2).seeds == 0
    assert [worker.returncode for worker in workers] == [-signal.SIGTERM] * 2
