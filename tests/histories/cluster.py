"""The API server of a history: objects that come and go, answers that fail, dawdle or lie, and the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from epd.api import names
from epd.api.types import EPDDeployment
from epd.collector.endpoint import ApiError
from epd.topology.model_version import model_version
from histories.schedule import Schedule

T = TypeVar("T")
Raw = dict[str, Any]
NAMESPACE = "ai"
CLAIM = "cache"
FOREIGN_VERSIONS = (
    "v1-stranger-0123456789ab",
    "v1-theirs-0123456789ab",
    "v1-linked-0123456789ab",
    "v1-mounted-0123456789ab",
)
"""Names of versions that nobody may touch: without a record, of another claim, a symbolic link, a mount."""


def _frozen_spec(salt: int, connector: str, policy: tuple[tuple[str, Any], ...]) -> Raw:
    return {
        "model": {"name": f"org/model-{salt}"},
        "engine": {"image": "vllm/vllm-openai:v0.33.0"},
        "encode": {"replicas": 1},
        "prefillDecode": {"replicas": 1},
        "encoderCache": {
            "connector": connector,
            "salt": str(salt),
            "volume": {"persistentVolumeClaim": {"claimName": CLAIM}},
            "reclaimPolicy": "Delete",
            "garbageCollection": dict(policy),
        },
    }


@cache
def spec_of(salt: int, connector: str, policy: tuple[tuple[str, Any], ...]) -> Raw:
    """Return a spec; equal arguments give the same object, so that what is made of it can be remembered."""
    return _frozen_spec(salt, connector, policy)


@cache
def version_of(salt: int, connector: str) -> str:
    """Return the version that a spec asks for."""
    raw = {"metadata": {"name": "x"}, "spec": _frozen_spec(salt, connector, ())}
    return model_version(EPDDeployment.model_validate(raw).spec)


_SEEN: dict[tuple[Any, ...], Any] = {}
"""What the collector's own functions make of an object, by content: the same objects come in every history."""


@dataclass
class Cluster:
    """Objects by name. Changed only by the methods, which also keep the truth of who lives."""

    schedule: Schedule
    epds: dict[str, Raw] = field(default_factory=dict)
    workloads: dict[str, Raw] = field(default_factory=dict)
    pods: dict[str, Raw] = field(default_factory=dict)
    claim_uid: str = "claim-1"
    adopts: str = ""
    requested: str = "1Gi"
    live: frozenset[str] = frozenset()
    lives: dict[str, list[tuple[int, int | None]]] = field(default_factory=dict)
    """Version to when it lived, in ns; the last time may last."""
    weather: str = "fine"
    """How the API server is: fine, down, flaky, slow, empty or partial."""
    lies: int = 0
    """Wrong answers given so far."""
    waiting: frozenset[str] = frozenset()
    """Versions that EPDDeployments being deleted, without pods, ask the collector to remove."""

    def changed(self) -> None:
        """Take note of who lives now."""
        live, waiting = self._named()
        for version in live - self.live:
            self.lives.setdefault(version, []).append((self.schedule.now, None))
        for version in self.live - live:
            lives = self.lives[version]
            lives[-1] = lives[-1][0], self.schedule.now
        self.live, self.waiting = live, waiting

    def _named(self) -> tuple[frozenset[str], frozenset[str]]:
        live, waiting = set[str](), set[str]()
        manned = {pod["metadata"]["labels"][names.LABEL_EPD] for pod in self.pods.values()}
        for name, epd in self.epds.items():
            leaving = bool(epd["metadata"].get("deletionTimestamp")) and name not in manned
            found = {epd["status"].get("modelVersion"), epd["version"]} - {None, ""}
            (waiting if leaving else live).update(found)
        for workload in self.workloads.values():
            if workload["spec"]["replicas"]:
                live.add(workload["spec"]["template"]["metadata"]["labels"][names.LABEL_MODEL_VERSION])
        for pod in self.pods.values():
            live.add(pod["metadata"]["labels"][names.LABEL_MODEL_VERSION])
        return frozenset(live), frozenset(waiting - live)

    def lived_throughout(self, version: str, start: int, end: int) -> bool:
        """Tell whether a version lived from `start` to `end`, both ns of true time, end not later than now."""
        return any(born <= start and (died is None or died >= end) for born, died in self.lives.get(version, ()))

    def dead_for(self, version: str) -> int:
        """Return for how many ns no object has named a version; 0 for one that lives."""
        lives = self.lives.get(version)
        if not lives:
            return self.schedule.now
        died = lives[-1][1]
        return 0 if died is None else self.schedule.now - died

    def apply(self, name: str, salt: int, connector: str, policy: tuple[tuple[str, Any], ...]) -> str:
        """Make or change an EPDDeployment; returns its version. Its status keeps naming the old one until rolled."""
        version = version_of(salt, connector)
        old = self.epds.get(name)
        self.epds[name] = {
            "metadata": {"name": name, "finalizers": [names.FINALIZER_ENCODER_CACHE]},
            "spec": spec_of(salt, connector, policy),
            "status": {"modelVersion": old["status"]["modelVersion"]} if old else {"modelVersion": version},
            "version": version,
        }
        self.changed()
        return version

    def rolled(self, name: str) -> None:
        """The status of an EPDDeployment says what its spec does."""
        if name in self.epds:
            epd = self.epds[name]
            self.epds[name] = {**epd, "status": {"modelVersion": epd["version"]}}
            self.changed()

    def delete(self, name: str) -> None:
        epd = self.epds[name]
        self.epds[name] = {**epd, "metadata": {**epd["metadata"], "deletionTimestamp": "2026-11-29T20:00:00Z"}}
        self.changed()

    def finalized(self, name: str) -> None:
        del self.epds[name]
        self.changed()

    def scale(self, name: str, version: str, replicas: int) -> None:
        """Make or scale a ReplicaSet."""
        labels = {names.LABEL_MODEL_VERSION: version}
        self.workloads[name] = {
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "template": {"metadata": {"labels": labels}}},
        }
        self.changed()

    def start_pod(self, uid: str, epd: str, version: str) -> None:
        labels = {names.LABEL_EPD: epd, names.LABEL_MODEL_VERSION: version, names.LABEL_ROLE: "encode"}
        self.pods[uid] = {"metadata": {"uid": uid, "name": uid, "labels": labels}}
        self.changed()

    def remove_pod(self, uid: str) -> None:
        del self.pods[uid]
        self.changed()


class Api:
    """What a collector asks: `ApiServer`, without a network. Answers take time, and the weather changes them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rng = cluster.schedule.rng

    def get(self, path: str) -> Raw:
        cluster = self._cluster
        self._weather(path)
        return {
            "metadata": {
                "uid": cluster.claim_uid,
                "annotations": {names.ANNOTATION_ADOPT_ROOT: cluster.adopts} if cluster.adopts else {},
            },
            "spec": {"resources": {"requests": {"storage": cluster.requested}}},
        }

    def list_all(self, path: str, keep: Callable[[Raw], T], *, metadata_only: bool = False) -> list[T]:
        kind = path.rpartition("/")[2]
        objects = {
            names.PLURAL: self._cluster.epds,
            "replicasets": self._cluster.workloads,
            "pods": self._cluster.pods,
        }.get(kind, {})
        found = list(objects.values())  # of the moment of the request, however late the answer
        self._weather(path)
        if self._cluster.weather == "empty" and found:
            self._cluster.lies += 1
            found = []
        if self._cluster.weather == "partial" and found and self._rng.random() < 0.5:
            self._cluster.lies += 1
            found.pop(self._rng.randrange(len(found)))
        return [_seen(keep, raw) for raw in found]

    def _weather(self, path: str) -> None:
        schedule, weather = self._cluster.schedule, self._cluster.weather
        if weather == "slow":
            schedule.wait(schedule.log_uniform(1.0, 250.0))
        else:
            schedule.wait(schedule.log_uniform(0.002, 0.2))
        weather = self._cluster.weather
        if weather == "down" or (weather == "flaky" and self._rng.random() < 0.4):
            raise ApiError(f"GET {path}: connection refused")


def _seen(keep: Callable[[Raw], T], raw: Raw) -> T:
    metadata = raw["metadata"]
    if "version" in raw:
        key: tuple[Any, ...] = (
            keep, metadata["name"], "deletionTimestamp" in metadata, bool(metadata["finalizers"]), id(raw["spec"]),
            raw["status"].get("modelVersion"),
        )  # fmt: skip
    elif "template" in raw.get("spec", {}):
        key = (keep, raw["spec"]["replicas"], raw["spec"]["template"]["metadata"]["labels"][names.LABEL_MODEL_VERSION])
    else:
        key = (keep, metadata["uid"], *metadata["labels"].values())
    if key not in _SEEN:
        _SEEN[key] = keep(raw)
    found: T = _SEEN[key]
    return found
