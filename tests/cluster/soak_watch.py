"""What is looked at during a soak: the volume every second, pods and their counters every few seconds.

Reads and remembers; decides nothing.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from cluster.client import Cluster
from cluster.deployed import Deployed, sample
from cluster.engine_requests import counters
from cluster.steps import HarnessError, say
from epd.collector.result import Cause
from epd.connector import layout

LOOK_SECONDS = 1.0
ASK_SECONDS = 5.0
"""Between two questions to API server and engines: kubectl and an engine's page of metrics cost a tenth of a core."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """One look at the volume, and at the collector's counters."""

    at: float
    share: float
    """Of the volume's bytes, as df has it: 0 to 1."""
    entries: int
    versions: tuple[str, ...]
    """Directories of versions."""
    deleted: float
    """Files that the collector deleted since its start."""


@dataclass
class Seen:
    """Everything that was seen."""

    looks: list[Look] = field(default_factory=list)
    deleted: dict[str, float] = field(default_factory=dict)
    """By cause, at last."""
    freed_bytes: float = 0
    passes: float = 0
    longest_pass: float = 0
    restarts: dict[str, int] = field(default_factory=dict)
    """By container, of every pod that ever was there."""
    engines: dict[str, Counter[str]] = field(default_factory=dict)
    """The connector's counters, by pod, as last seen."""
    healthy: Counter[str] = field(default_factory=Counter)
    """Reasons of EncoderCacheHealthy, by the number of times seen."""
    troubles: Counter[str] = field(default_factory=Counter)
    """Reasons that the collector gave, likewise."""
    blind: Counter[str] = field(default_factory=Counter)
    """Looks that failed, by what failed."""

    def connector(self) -> Counter[str]:
        """The connector's counters, summed over all engines."""
        return sum(self.engines.values(), Counter())


class Watch:
    """Threads that look until they are stopped."""

    def __init__(self, cluster: Cluster, epd: Deployed, store: Path, *, began: float) -> None:
        self.seen = Seen()
        self._cluster, self._epd, self._store, self._began = cluster, epd, store, began
        self._collector = ""
        self._over = threading.Event()
        repeated = ((self.look, LOOK_SECONDS), (self.ask, ASK_SECONDS))
        self._threads = [threading.Thread(target=self._repeat, args=each, daemon=True) for each in repeated]

    def start(self) -> None:
        """Begin."""
        self.ask()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, work: Callable[[], None], every: float) -> None:
        while not self._over.wait(every):
            try:
                work()
            except (HarnessError, httpx.HTTPError, OSError) as error:
                self.seen.blind[type(error).__name__] += 1
                say(f"    not seen: {error}")

    def look(self) -> None:
        """Look at the volume and at the collector's counters once."""
        found = os.statvfs(self._store)
        used = found.f_blocks - found.f_bfree
        count, versions = entries_of(self._store)
        at = time.monotonic() - self._began
        page = httpx.get(f"{self._collector}/metrics", timeout=5).text
        seen = self.seen
        seen.deleted = {cause.value: sample(page, "epd_gc_deleted_total", reason=cause.value) for cause in Cause}
        seen.freed_bytes = sample(page, "epd_gc_deleted_bytes_total")
        seen.passes = sample(page, "epd_gc_passes_total")
        seen.longest_pass = max(seen.longest_pass, sample(page, "epd_gc_pass_running_seconds"))
        seen.looks.append(
            Look(
                at=at,
                share=used / (used + found.f_bavail),
                entries=count,
                versions=versions,
                deleted=sample(page, "epd_gc_deleted_total"),
            )
        )

    def ask(self) -> None:
        """Ask for the object, its pods and their counters once."""
        for condition in self._epd.get()["status"]["conditions"]:
            if condition["type"] == "EncoderCacheHealthy":
                self.seen.healthy[condition["reason"]] += 1
        for pod in self._cluster.get("pods", "-n", self._epd.namespace)["items"]:
            self._pod(pod)
        told = httpx.get(f"{self._collector}/status", timeout=5).json()
        self.seen.troubles.update(trouble["reason"] for trouble in told["troubles"])

    def _pod(self, pod: dict[str, Any]) -> None:
        name, labels = pod["metadata"]["name"], pod["metadata"].get("labels", {})
        for status in pod["status"].get("containerStatuses", []):
            key = f"{name}/{status['name']}"
            self.seen.restarts[key] = max(self.seen.restarts.get(key, 0), status["restartCount"])
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
        if not ready:
            return
        if "epd.dev/collector" in labels:
            self._collector = f"http://{pod['status']['podIP']}:8080"
        if "llm-d.ai/role" in labels:
            with suppress(httpx.HTTPError):  # it may be on its way out
                self.seen.engines[name] = counters(f"http://{pod['status']['podIP']}:8000")


def entries_of(store: Path) -> tuple[int, tuple[str, ...]]:
    """Count entries, and list the versions that have a directory."""
    versions = tuple(sorted(name for name in os.listdir(store) if layout.is_version(name)))
    count = 0
    for version in versions:
        try:
            shards = [found.path for found in os.scandir(store / version) if layout.SHARD_PATTERN.fullmatch(found.name)]
        except FileNotFoundError:  # renamed away
            continue
        for shard in shards:
            try:
                count += sum(layout.ENTRY_PATTERN.fullmatch(name) is not None for name in os.listdir(shard))
            except FileNotFoundError:
                continue
    return count, versions
