"""What befalls a deployment from outside: engines that hang or are killed, a control plane that is away.

Engines are reached by kubectl, as the pods' own user. Asserts nothing.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from cluster import Cluster, controlplane, native, paths, processes
from cluster.deployed import Deployed
from cluster.steps import HarnessError

_ARMED = "armed\n"
_SIGNAL_CORE = """
import os, pathlib, sys
names = pathlib.Path("/proc").glob("[0-9]*/comm")
cores = [name.parent.name for name in names if name.read_text().startswith("VLLM::EngineCor")]
assert cores, "no engine core"
if sys.argv[2:] == ["wait"]:
    print("armed", flush=True)
    sys.stdin.readline()
for pid in cores:
    os.kill(int(pid), int(sys.argv[1]))
"""


def signal_engine(epd: Deployed, role: str, number: signal.Signals) -> None:
    """Send a signal to the engine cores of a role; the HTTP servers before them stay as they are."""
    for pod in epd.pods(role):
        epd.run("exec", pod["metadata"]["name"], "--", "python3", "-c", _SIGNAL_CORE, str(int(number)))


@contextmanager
def armed(cluster: Cluster, epd: Deployed, role: str, number: signal.Signals) -> Iterator[Callable[[], None]]:
    """What does as `signal_engine`, within milliseconds: kubectl takes a second, in which an answer may end.

    Raises HarnessError: an engine can't be reached.
    """
    kubectl = [str(paths.tool("kubectl")), "--kubeconfig", str(cluster.kubeconfig), "-n", epd.namespace, "exec", "-i"]
    script = ["--", "python3", "-c", _SIGNAL_CORE, str(int(number)), "wait"]
    with ExitStack() as stack:
        waiting = []
        for pod in epd.pods(role):
            command = [*kubectl, pod["metadata"]["name"], *script]
            waiting.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            stack.callback(waiting[-1].kill)
        for shell in waiting:
            if shell.stdout is None or shell.stdout.readline() != _ARMED:
                raise HarnessError("an engine's container runs no script")

        def strike() -> None:
            for shell in waiting:
                shell.communicate("\n")

        yield strike


@contextmanager
def hung(epd: Deployed, role: str) -> Iterator[None]:
    """Engines of a role that take requests, say that they are healthy, and do nothing until the block ends."""
    signal_engine(epd, role, signal.SIGSTOP)
    try:
        yield
    finally:
        signal_engine(epd, role, signal.SIGCONT)


@contextmanager
def without_control_plane() -> Iterator[None]:
    """The native node's API server and controllers are gone until the block ends; etcd, kubelet and kube-proxy go on.

    With the API server alone the controllers would take the node for lost once it is back, since they saw no lease
    renewed for longer than their grace period of 50 s, and set all its pods to not ready for some seconds.
    """
    state, names = paths.node(), ("controller-manager", "apiserver")
    commands = {name: processes.command(name, state=state) for name in names}
    for name in names:
        processes.stop(name, state=state)
    try:
        yield
    finally:
        processes.start("apiserver", commands["apiserver"], state=state)
        controlplane.wait(state=state, address=native.ADDRESS)
        processes.start("controller-manager", commands["controller-manager"], state=state)


@dataclass(frozen=True)
class Streamed:
    """What came of a stream: its text, and whether a client takes it for complete."""

    text: str
    complete: bool


def interrupted(url: str, request: dict[str, Any], befall: Callable[[], None]) -> Streamed:
    """Ask for a stream, let `befall` happen after its first content, and read to the end."""
    text, complete = "", False
    try:
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=request | {"stream": True}, timeout=60) as answer:
            for line in answer.iter_lines():
                if not line.startswith("data: {"):
                    complete = complete or line == "data: [DONE]"
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    return Streamed(text, complete=False)
                content = event["choices"][0]["delta"].get("content") if event["choices"] else None
                if content and not text:
                    befall()
                text += content or ""
    except httpx.TransportError:
        return Streamed(text, complete=False)
    return Streamed(text, complete)
