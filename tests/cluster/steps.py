"""Runs steps so that people see what is done, how long it may take and how long it took; and caches by name.

It decides nothing about clusters.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

HEARTBEAT = 10.0
"""Seconds between signs of life of a step: whoever waits longer wonders whether it hangs."""


class HarnessError(Exception):
    """A step failed in a way that the message explains."""


def say(line: str) -> None:
    """Prints one line at once, also into a pipe."""
    print(line, flush=True)


@contextmanager
def step(what: str, *, may_take: str = "") -> Iterator[None]:
    """Announces `what` with the time it may take, shows life every 10 s, and says how long it took."""
    began = time.monotonic()
    done = threading.Event()

    def beat() -> None:
        while not done.wait(HEARTBEAT):
            say(f"    ... {what}: {time.monotonic() - began:.0f} s")

    say(f"==> {what}" + (f" (may take {may_take})" if may_take else ""))
    threading.Thread(target=beat, daemon=True).start()
    try:
        yield
    except BaseException:
        say(f"    {what}: failed after {time.monotonic() - began:.1f} s")
        raise
    finally:
        done.set()
    say(f"    {what}: {time.monotonic() - began:.1f} s")


def run(
    argv: Sequence[object],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    timeout: float | None = None,
) -> str:
    """Runs a command and returns its output. `env` is added to our own.

    Raises HarnessError: it failed; the message holds the end of what it wrote.
    """
    words = [str(word) for word in argv]
    result = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if result.returncode:
        tail = (result.stdout + result.stderr)[-3000:].strip()
        raise HarnessError(f"{' '.join(words)[:300]}\nexited with {result.returncode}:\n{tail}")
    return result.stdout


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds `path`.lock: two runs that need the same thing make it once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{path}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with step(f"wait for another run that makes {path.name}"):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def cached(path: Path, what: str, make: Callable[[Path], None], *, may_take: str = "") -> Path:
    """Returns `path`, made by `make(temporary path)` if it is absent, and put in place in one rename."""
    if path.exists():
        return path
    with locked(path):
        if path.exists():
            return path
        temporary = path.with_name(f"{path.name}.part")
        if temporary.is_dir():
            shutil.rmtree(temporary)
        temporary.unlink(missing_ok=True)
        with step(what, may_take=may_take):
            make(temporary)
            temporary.rename(path)
    return path


def until(what: str, ready: Callable[[], bool], *, seconds: float, every: float = 0.1) -> None:
    """Waits until `ready()`.

    Raises HarnessError: not within `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise HarnessError(f"{what}: not within {seconds:.0f} s")
        time.sleep(every)
