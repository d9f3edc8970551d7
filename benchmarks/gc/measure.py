"""What a piece of work costs, in a process of its own, and how a figure stands against its peer or limit."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

_PRIVATE: Final = "EPD_BENCH_PRIVATE_MOUNTS"


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Seconds; `cpu` is that of the process and of all that it waited for. `said` is what the work returned."""

    wall: float
    cpu: float
    said: Any = None


def cost(work: Callable[[], Any] | Sequence[str]) -> Cost:
    """Do `work`, a function or a command, in a child. Raises SystemExit if it fails."""
    reading, writing = os.pipe()
    began = time.perf_counter()
    child = os.fork()
    if child == 0:
        _work(work, writing)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    _, status, usage = os.wait4(child, 0)
    wall = time.perf_counter() - began
    if status:
        raise SystemExit(f"{work} failed: {said}")
    return Cost(wall=wall, cpu=usage.ru_utime + usage.ru_stime, said=json.loads(said or "null"))


def _work(work: Callable[[], Any] | Sequence[str], pipe: int) -> None:
    status = 1
    try:
        if not callable(work):
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, sys.stdout.fileno())
            os.execvp(work[0], list(work))
        os.write(pipe, json.dumps(work()).encode())
        status = 0
    except BaseException as error:
        os.write(pipe, repr(error).encode())
    finally:
        os._exit(status)


def median(costs: Iterable[Cost], part: str) -> float:
    return statistics.median(getattr(one, part) for one in costs)


def verdict(*, reached: bool) -> str:
    return "reached" if reached else "MISSED"


def heading(text: str) -> None:
    print(f"\n{text}", flush=True)


def in_private_mounts() -> None:
    """Go on in a mount namespace of our own: what is mounted goes with the process, however it ends."""
    if os.environ.get(_PRIVATE):
        return
    for user in ([], ["--user", "--map-root-user"]):
        unshare = ["unshare", *user, "--mount", "--propagation", "private"]
        if subprocess.run([*unshare, "true"], capture_output=True).returncode == 0:
            os.execvpe(unshare[0], [*unshare, sys.executable, *sys.argv], os.environ | {_PRIVATE: "1"})
    raise SystemExit("no mount namespace can be had here, neither as this user nor as root of a user namespace")


def mount_tmpfs(path: str, size: int) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes=0", "bench", path], check=True)


def unmount(path: str) -> None:
    subprocess.run(["umount", path], check=True)


def file_system(path: str) -> str:
    """Return the type of the file system that holds `path`."""
    command = ["findmnt", "--noheadings", "--output", "FSTYPE", "--target", path]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
