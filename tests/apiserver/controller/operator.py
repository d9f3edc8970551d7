"""The real operator as a process of its own against a real API server. Starts, asks and ends it; judges nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

REPO = Path(__file__).parents[3]
START_SECONDS = 40
"""Imports take 2 s alone, and several times as long beside other tests on two cores."""


@dataclass
class Operator:
    """A running operator."""

    process: subprocess.Popen[bytes]
    metrics_port: int
    health_port: int
    log: Path

    def health(self, path: str = "/healthz") -> tuple[int, str]:
        """Status and text of a probe; (0, "") when nothing answers."""
        try:
            answer = httpx.get(f"http://127.0.0.1:{self.health_port}{path}", timeout=5)
        except httpx.HTTPError:
            return 0, ""
        return answer.status_code, answer.text

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric over all series that have these labels."""
        text = httpx.get(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5).text
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        lines = [line for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if all(label in line for label in wanted))

    def writes(self) -> float:
        """How many requests other than reads it has sent."""
        return sum(self.metric("rest_client_requests_total", method=m) for m in ("PATCH", "POST", "DELETE", "PUT"))

    def stop(self) -> int:
        """SIGTERM, and the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


@contextlib.contextmanager
def running(kubeconfig: Path, state: Path, *flags: str) -> Iterator[Operator]:
    """An operator that is ready."""
    metrics_port, health_port = free_port(), free_port()
    argv = [sys.executable, "-c", "from epd.controller.main import main; main()", "--operator-image=epd-operator:test"]
    argv += [f"--metrics-port={metrics_port}", f"--health-port={health_port}", *flags]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(REPO / "operator")}
    log = state / f"operator-{health_port}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(argv, env=environment, stdout=out, stderr=out)
    operator = Operator(process, metrics_port, health_port, log)
    try:
        eventually(lambda: operator.health("/readyz")[0] == 200, within=START_SECONDS, about=log.read_text)
        yield operator
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(true: Callable[[], bool], *, within: float = 30, about: Callable[[], str] = lambda: "") -> None:
    """Wait until something holds; AssertionError with `about()` if it does not in time."""
    deadline = time.monotonic() + within
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"did not come true within {within} s. {about()}")
        time.sleep(0.1)
