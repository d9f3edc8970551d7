"""A root on a real file system, and a collector of it with a clock that tests move."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from epd.api.names import Reason
from epd.collector.collection import Collection
from epd.collector.files import Files, KernelFiles
from epd.collector.inputs import Claim, Declaration, Liveness, Policy
from epd.collector.result import PassResult

LIVE = "v1-live-00000000000a"
DEAD = "v1-dead-00000000000b"
CLAIM = Claim(name="ns/cache", uid="uid-1")
POLICY = Policy(
    enabled=True,
    dry_run=False,
    version_grace=3600,
    entry_ttl=None,
    min_idle=1800,
    high_percent=85,
    low_percent=70,
)


class Tree:
    """Writes as connectors do, with given ages, and remembers what the API server would say."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.live: dict[str, tuple[str, ...]] = {LIVE: ("qwen",)}
        self.expedited: frozenset[str] = frozenset()
        self.pods: frozenset[str] = frozenset({"pod-1"})
        self.valid = True
        self.declared: Mapping[str, Declaration] = {}
        self.asked = 0
        self.on_ask: Any = None
        self.now = 1000.0

    def ask(self) -> Liveness:
        self.asked += 1
        if self.on_ask is not None:
            self.on_ask(self.asked)
        return Liveness(
            valid=self.valid,
            live=dict(self.live),
            expedited=self.expedited,
            pods=self.pods,
            taken=self.now,
            message="" if self.valid else "list failed",
            declared=self.declared,
        )

    def collection(self, **changed: Any) -> Collection:
        arguments: dict[str, Any] = {"name": "me", "ask": self.ask, "clock": lambda: self.now, "sleep": self.sleep}
        return Collection(str(self.path), **(arguments | changed))

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def collect(self, policy: Policy = POLICY, *, claim: Claim = CLAIM, **changed: Any) -> PassResult:
        """One pass of a collector that was just started."""
        return self.collection(**changed).run(claim, policy)

    def record(self, version: str, *, claim: str = CLAIM.name, layout: str = "Managed", **changed: Any) -> Path:
        directory = self.path / ".epd-gc" / "versions"
        directory.mkdir(parents=True, exist_ok=True)
        content = {"format": 1, "version": version, "claim": claim, "layout": layout, "inputs": {}, "created": ""}
        file = directory / f"{version}.json"
        file.write_text(json.dumps(content | changed))
        return file

    def entry(self, version: str, identifier: str, *, age: float = 7200.0, size: int = 4096) -> Path:
        digest = hashlib.sha256(identifier.encode()).hexdigest()
        return self.file(f"{version}/{digest[:2]}/{digest}.safetensors", age=age, size=size)

    def example(self, version: str, identifier: str, *, age: float = 7200.0, size: int = 4096) -> Path:
        return self.file(f"{version}/{identifier}/encoder_cache.safetensors", age=age, size=size)

    def file(self, name: str, *, age: float = 7200.0, size: int = 4096) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
        return self.aged(path, age)

    def aged(self, path: Path, age: float) -> Path:
        then = time.time() - age
        os.utime(path, (then, then), follow_symlinks=False)
        return path

    def condemn(self, version: str, *, age: float = 7200.0) -> Path:
        return self.file(f".epd-gc/condemned/{version}", age=age, size=0)

    def pin(self, entry: Path, name: str = "1") -> Path:
        """Pin an entry as a pod that is alive does."""
        pin = self.path / ".epd-gc" / "pins" / "pod-1" / "n" / name
        self.file(".epd-gc/pins/pod-1/n/heartbeat", age=1, size=0)
        os.link(entry, pin)
        return pin

    def dead(self, *, entries: int = 3, age: float = 7200.0) -> None:
        """A version that is due to be removed."""
        self.record(DEAD)
        for number in range(entries):
            self.entry(DEAD, f"dead-{number}", age=age)
        self.condemn(DEAD, age=age)

    def trash(self) -> list[str]:
        return sorted(os.listdir(self.path / ".epd-gc" / "trash"))

    def names(self) -> dict[str, tuple[int, int, int]]:
        """Everything on disk: inode, size and time of last writing."""
        return {
            str(path.relative_to(self.path)): (status.st_ino, status.st_size, status.st_mtime_ns)
            for path in sorted(self.path.rglob("*"))
            for status in [path.lstat()]
        }


def reasons(result: PassResult) -> list[Reason]:
    """Why a pass has something to tell."""
    return [trouble.reason for trouble in result.troubles]


def policy(**changed: Any) -> Policy:
    return dataclasses.replace(POLICY, **changed)


class Wrapped:
    """The real file system, with calls replaced by name."""

    def __init__(self, **replaced: Any) -> None:
        self._real: Files = KernelFiles()
        self._replaced = replaced

    def __getattr__(self, name: str) -> Any:
        return self._replaced.get(name) or getattr(self._real, name)
