"""Starts engines and stacks, each pinned to a CPU, and ends them again: its own processes, by their ids, and no others.

A stack that cannot be had or does not come up is absent, with the reason. Measures nothing.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import peers
from peers import CACHE, ROOT, AbsentError

DIRECT: Final = "direct"
RELAY: Final = "relay"
OURS: Final = "epd-proxy"
UPSTREAM: Final = "upstream"
ROUTER: Final = "vllm-router"
STACKS: Final = (DIRECT, RELAY, OURS, UPSTREAM, ROUTER)
WITHOUT_PREFILL: Final = (DIRECT, RELAY, ROUTER)
"""Stacks that have one engine behind them, whatever the topology."""
START_SECONDS: Final = 60
"""A peer imports for up to 20 s on a crowded machine."""


def cpus() -> tuple[int, int]:
    """Return the CPU of what is measured, and the one of engines and loader; the same where there is only one."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[-1]


class Processes:
    """What was started, and its end. Children die with us, however we end (PR_SET_PDEATHSIG)."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.logs = CACHE / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, cpu: int, command: Sequence[str]) -> Started:
        """Start `command` on `cpu`; what it says goes to a log, as a service's does to its journal."""
        log = self.logs / f"{name.replace('|', '').replace(' ', '-')}.log"
        with log.open("wb") as said:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "taskset", "-c", str(cpu), *command],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
                process_group=0,  # Ctrl-C comes to us alone, and we end the others
            )
        started = Started(process, log)
        self._stack.callback(started.end)
        return started


@dataclass
class Started:
    """One process of ours."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def first_line(self) -> str:
        """Wait for the first line that it says; empty if it ends without one."""
        while "\n" not in (said := self.log.read_text()) and self.process.poll() is None:
            time.sleep(0.01)
        return said.partition("\n")[0]

    def end(self) -> None:
        """Kill it: it has no state that anyone needs."""
        self.process.kill()
        self.process.wait()

    def last_words(self) -> str:
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][:200] if lines else "it said nothing"


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A stack that answers at `address`, and whose CPU is that of `process`."""

    address: str
    process: Started


@dataclass
class Rack:
    """All engines and stacks of a run. `absent` has the reason of every stack that is not there."""

    processes: Processes
    binary: Path
    package: Path = ROOT / "operator"
    """What to put on the proxy's path: sources, or what `cluster.compiled` makes of them."""
    engines: dict[str, Instance] = field(default_factory=dict)
    instances: dict[str, Instance] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Keep both CPUs from falling asleep, by loops that give way to everything else (SCHED_IDLE).

        A virtual CPU that sleeps takes some 100 us to wake, and costs who wakes it a call of the hypervisor. That falls
        on whoever leaves the engines' CPU time to sleep, and says nothing of a stack. Where the gates were calibrated
        the machine was never idle.
        """
        loop = ["chrt", "--idle", "0", "sh", "-c", "while :; do :; done"]
        loops = [self.processes.start(f"awake-{cpu}", cpu, loop) for cpu in sorted(set(cpus()))]
        try:
            yield
        finally:
            for each in loops:
                each.end()

    def start_engines(self) -> None:
        """Start one engine of each role."""
        for role in ("e", "pd", "p", "d"):
            self.engines[role] = self.start_engine(role)

    def start_engine(self, role: str, *, address: str = "127.0.0.1:0", version: str = "v1") -> Instance:
        """Start an engine of `role` on the CPU of the engines."""
        command = [str(self.binary), "engine", "-listen", address, "-role", role, "-version", version]
        started = self.processes.start(f"engine-{role}", cpus()[1], command)
        if not (listening := started.first_line()).startswith("127."):
            raise SystemExit(f"engine {role}: {started.last_words()}")
        return Instance(address=listening, process=started)

    def start(self, name: str, *, three_legs: bool = False) -> None:
        """Start a stack and wait until it answers; if it doesn't, note why."""
        label = named(name, three_legs=three_legs)
        if label in self.instances or label in self.absent:
            return
        if name == DIRECT:
            self.instances[label] = self.engines["pd"]
            return
        try:
            self.instances[label] = self._started(name, label, three_legs)
        except AbsentError as error:
            self.absent[label] = str(error)

    def _started(self, name: str, label: str, three_legs: bool) -> Instance:
        port = free_port()
        return self.start_proxy(label, COMMANDS[name](self, port, three_legs), port)

    def start_proxy(self, label: str, command: Sequence[str], port: int) -> Instance:
        """Start what will listen on `port` and wait until it answers. Raises AbsentError."""
        started = self.processes.start(label, cpus()[0], command)
        address = f"127.0.0.1:{port}"
        deadline = time.monotonic() + START_SECONDS
        while not self._answers(address):
            if started.process.poll() is not None:
                raise AbsentError(f"it ended: {started.last_words()}")
            if time.monotonic() > deadline:
                raise AbsentError(f"no answer within {START_SECONDS} s: {started.last_words()}")
            time.sleep(0.2)
        return Instance(address=address, process=started)

    def _answers(self, address: str) -> bool:
        body = b'{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":1,"stream":false}'
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n"
        host, _, port = address.partition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
                return connection.recv(16)[9:12] in (b"200", b"400")  # a decode engine wants its kv_transfer_params
        except OSError:
            return False


def named(name: str, *, three_legs: bool) -> str:
    """Name a stack among the instances: another process serves three legs."""
    return f"{name} E|P|D" if three_legs and name not in WITHOUT_PREFILL else name


def free_port() -> int:
    """Return a port of the loopback that nobody listens on right now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _relay(rack: Rack, port: int, _: bool) -> list[str]:
    return [str(rack.binary), "relay", "-listen", f"127.0.0.1:{port}", "-to", rack.engines["pd"].address]


def _urls(rack: Rack, three_legs: bool) -> tuple[str, str, str]:
    """Return the encoder's, the prefill and the decode engine's URL."""
    url = {role: f"http://{engine.address}" for role, engine in rack.engines.items()}
    return (url["e"], url["p"], url["d"]) if three_legs else (url["e"], "disable", url["pd"])


def members(encode: str, prefill: str, decode: str) -> list[str]:
    """Write the flags that the proxy and vLLM's script share."""
    return [f"--encode-servers-urls={encode}", f"--prefill-servers-urls={prefill}", f"--decode-servers-urls={decode}"]


def ours(package: Path, port: int, encode: str, prefill: str, decode: str) -> list[str]:
    """Write the command of this project's proxy, in front of engines given by URL."""
    ports = ["--host=127.0.0.1", f"--port={port}", f"--admin-port={free_port()}"]
    policy = ["--rewrite", "--hash-algorithm=BLAKE3"]
    path = f"PYTHONPATH={package}{os.pathsep}{peers.libraries()}"
    return [
        "env",
        path,
        peers.interpreter(),
        "-m",
        "epd.proxy.main",
        *ports,
        *members(encode, prefill, decode),
        *policy,
    ]


def _ours(rack: Rack, port: int, three_legs: bool) -> list[str]:
    return ours(rack.package, port, *_urls(rack, three_legs))


def _upstream(rack: Rack, port: int, three_legs: bool) -> list[str]:
    return [*peers.upstream(), "--host=127.0.0.1", f"--port={port}", *members(*_urls(rack, three_legs))]


def _router(rack: Rack, port: int, _: bool) -> list[str]:
    ports = [f"--port={port}", f"--prometheus-port={free_port()}"]
    worker = ["--worker-urls", f"http://{rack.engines['pd'].address}", "--policy=round_robin"]
    return [*peers.router(), *ports, *worker, "--worker-startup-check-interval=1", "--log-level=warning"]


COMMANDS: Final[dict[str, Callable[[Rack, int, bool], list[str]]]] = {
    RELAY: _relay,
    OURS: _ours,
    UPSTREAM: _upstream,
    ROUTER: _router,
}
