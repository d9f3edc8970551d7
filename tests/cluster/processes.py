"""Starts background processes and ends them by pid, never by name.

A recorded pid counts only together with its start time, so that a reused pid is never signalled.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

TERM_SECONDS = 10.0
"""etcd and the API server end within 5 s of SIGTERM; then SIGKILL."""


def started(pid: int) -> str | None:
    """Start time of a living process in clock ticks since boot (proc(5), field 22); None for zombies and the dead."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields[19]


def start(name: str, argv: Sequence[object], *, state: Path, env: Mapping[str, str] | None = None) -> None:
    """Starts `argv` in a session of its own unless `name` runs; log in `state`/log, pid in `state`/run."""
    if alive(name, state=state):
        return
    for folder in ("log", "run"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    with (state / "log" / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [str(word) for word in argv],
            cwd=state,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    (state / "run" / f"{name}.pid").write_text(f"{process.pid} {started(process.pid)}")


def alive(name: str, *, state: Path) -> bool:
    """Whether the process that `start` recorded under `name` still runs."""
    return _pid(name, state) is not None


def command(name: str, *, state: Path) -> list[str]:
    """The arguments of the process recorded under `name`, to start it again. Raises FileNotFoundError: it is dead."""
    pid = _pid(name, state)
    return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")


def stop(name: str, *, state: Path) -> None:
    """Ends the process recorded under `name`: SIGTERM, after 10 s SIGKILL."""
    pid = _pid(name, state)
    if pid is not None:
        end(pid)
    (state / "run" / f"{name}.pid").unlink(missing_ok=True)


def end(pid: int) -> None:
    """Ends one process: SIGTERM, after 10 s SIGKILL."""
    birth = started(pid)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + TERM_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # ours when the same run started it: a zombie would count as running
            if birth is None or started(pid) != birth:
                return
            time.sleep(0.05)


def log_tail(name: str, *, state: Path, lines: int = 20) -> str:
    """The last lines that `name` logged."""
    path = state / "log" / f"{name}.log"
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else "(no log)"


def _pid(name: str, state: Path) -> int | None:
    path = state / "run" / f"{name}.pid"
    if not path.exists():
        return None
    pid, _, birth = path.read_text().partition(" ")
    return int(pid) if started(int(pid)) == birth else None
