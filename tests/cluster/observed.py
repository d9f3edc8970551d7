"""Engines that something befalls while they are asked: their answers, what becomes of them, others in their place."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from cluster import entries
from cluster.chat import body, post
from cluster.engine_requests import Metadata, prime
from cluster.fragile import Fragile
from cluster.steps import HarnessError, until

PATIENCE = 20.0
"""Seconds for an answer; on two busy cores an engine that is well takes two, and Managed's deadlines two each."""
RESTART_SECONDS = 60.0
"""From a dead engine's last answer to the kubelet's new container; vLLM's API server exits within about 5 s."""
READY_SECONDS = 240.0
"""Of an engine that starts alone."""
IN_WORKER = re.compile(r"Worker failed with error '(.*?)', please check")
IN_CORE = re.compile(r"EngineCore.*?\b((?:\w+\.)*\w*Error\b: .*)")
"""How vLLM 0.32 logs the error that ended the engine core: one of a worker's, or its own."""
ENCODER, ENGINE = "encode", "prefill-decode"


@dataclass(frozen=True)
class Outcome:
    """What came back, and what became of the engine that was asked."""

    answer: str
    engine: str
    note: str = ""


class Bench:
    """One deployment, whose engines are replaced when they die."""

    def __init__(self, fragile: Fragile, connector: str) -> None:
        self.epd, self.volume, self._connector = fragile.epd, fragile.volume, connector
        self._version = self.epd.get()["status"]["modelVersion"]

    def file(self, uuid: str) -> Path:
        """Where an entry lies."""
        where = entries.path if self._connector == "Managed" else entries.example_path
        return where(self.volume.folder, self._version, uuid)

    def primed(self, items: Mapping[str, str]) -> dict[str, Metadata]:
        """Let the encoder write entries that any damage fits."""
        told = prime(f"http://{self.ready(ENCODER)['status']['podIP']}:8000", items)
        if self._connector == "Example":
            for uuid in told:
                entries.seal(self.file(uuid), uuid, self._version)
        return told

    def asked(
        self,
        role: str,
        request: dict[str, Any],
        colour: str = "",
        *,
        during: AbstractContextManager[None] | None = None,
    ) -> Outcome:
        """Send a request; see whether its answer is `colour` and how the engine is; make all well again."""
        return self.observed(role, lambda engine: _answer(engine, request, colour), during=during)

    def observed(
        self, role: str, send: Callable[[str], str], *, during: AbstractContextManager[None] | None = None
    ) -> Outcome:
        """Do something to the engine at a base URL, which says what it answered; see and mend as `asked` does."""
        pod = self.ready(role)
        engine, restarts = f"http://{pod['status']['podIP']}:8000", _restarts(pod)
        with during or nullcontext():
            answer = send(engine)
            health, text = _health(engine), _text(engine)
        if text == "200":
            return Outcome(answer, f"lives, /health {health}")
        if text == "none" and health == "200":
            if during is None or _text(engine) != "200":
                self._replace(pod)
            return Outcome(answer, "hangs, /health 200")
        until("the engine's restart", lambda: self._restarts(pod) > restarts, seconds=RESTART_SECONDS)
        why = self._cause(pod)
        self._replace(pod)
        return Outcome(answer, f"dies, /health {health}, container restarted", why)

    def ready(self, role: str) -> dict[str, Any]:
        """A pod of the role, waited for."""
        until(f"{role} Ready", lambda: any(map(_ready, self.epd.pods(role))), seconds=READY_SECONDS, every=1)
        return next(filter(_ready, self.epd.pods(role)))

    def _restarts(self, pod: dict[str, Any]) -> int:
        return _restarts(json.loads(self.epd.run("get", "pod", pod["metadata"]["name"], "-o", "json")))

    def _cause(self, pod: dict[str, Any]) -> str:
        """The error that ended the container before this one, as vLLM logged it."""
        until("the old container's log", lambda: bool(self._log(pod)), seconds=RESTART_SECONDS, every=1)
        log = self._log(pod)
        found = IN_WORKER.findall(log) or [said for said in IN_CORE.findall(log) if "EngineDeadError" not in said]
        return found[-1][:120] if found else ""

    def _log(self, pod: dict[str, Any]) -> str:
        try:
            return self.epd.run("logs", pod["metadata"]["name"], "--previous", "--tail=400")
        except HarnessError:  # the kubelet has not looked yet
            return ""

    def _replace(self, pod: dict[str, Any]) -> None:
        """Another pod, for which the kubelet does not back off."""
        self.epd.run("delete", "pod", pod["metadata"]["name"], "--grace-period=1", "--timeout=60s")


def _restarts(pod: dict[str, Any]) -> int:
    return sum(status["restartCount"] for status in pod["status"].get("containerStatuses", []))


def _ready(pod: dict[str, Any]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))


def _answer(engine: str, request: dict[str, Any], colour: str) -> str:
    try:
        answer = post(engine, request, seconds=PATIENCE)
    except httpx.TimeoutException:
        return f"none within {PATIENCE:.0f} s"
    except httpx.TransportError:
        return "connection closed"
    if answer.status != 200 or not colour:
        return str(answer.status)
    return "200, right colour" if answer.text == colour else f"200, WRONG: {answer.text}, not {colour}"


def _health(engine: str) -> str:
    try:
        return str(httpx.get(f"{engine}/health", timeout=10).status_code)
    except httpx.TransportError:
        return "gone"


def _text(engine: str) -> str:
    """Status of a question without a picture: what an engine that is well always answers."""
    try:
        return str(post(engine, body([]), seconds=PATIENCE).status)
    except httpx.TimeoutException:
        return "none"
    except httpx.TransportError:
        return "gone"
