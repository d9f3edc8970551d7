"""The cluster around the operator: toy Deployment, Job and volume controllers, and the operator process itself."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from epd import manifests
from epd.api import names
from epd.api.collection import CollectorReport
from epd.api.types import EPDDeployment
from epd.controller import cache, keys, kinds
from epd.controller.build import Build, ThisBuild
from epd.controller.dispatch import Dispatcher
from epd.controller.errors import ClusterError
from epd.controller.events import Recorder
from epd.controller.kinds import Manifest, kind_of
from epd.controller.outcome import Outcome
from epd.controller.reconcile import Reconciler
from epd.controller.reconcile_claim import ClaimReconciler, Problems
from epd.controller.reports import Reports
from simulation.api import SimulatedCluster

KEY = "ai/qwen"

SPEC: dict[str, Any] = {
    "model": {"name": "Qwen/Qwen2.5-VL-3B-Instruct"},
    "engine": {"image": "vllm/vllm-openai:v0.33.0"},
    "encode": {"replicas": 2},
    "prefillDecode": {"replicas": 3},
    "encoderCache": {
        "volume": {
            "volumeClaimTemplate": {
                "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "10Gi"}}}
            }
        }
    },
}


def parent(spec: dict[str, Any] | None = None, *, name: str = "qwen") -> Manifest:
    """An EPDDeployment as a user applies it."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, "namespace": "ai"},
        "spec": copy.deepcopy(SPEC if spec is None else spec),
    }


def with_spec(**changes: Any) -> dict[str, Any]:
    """`SPEC` with top-level members replaced; None removes one."""
    spec = {**copy.deepcopy(SPEC), **changes}
    return {key: value for key, value in spec.items() if value is not None}


class NextBuild(ThisBuild):
    """A later build of the operator: another connector, and one more variable in every engine."""

    def context(self, *, preflight: bool) -> manifests.Context:
        """With another source."""
        return replace(super().context(preflight=preflight), connector_sources={"managed.py": "# of the next release"})

    def desired(self, epd: EPDDeployment, *, preflight: bool) -> tuple[Manifest, ...]:
        """As this build, but for the engines' pod templates."""
        children = super().desired(epd, preflight=preflight)
        for child in children:
            if kind_of(child) == kinds.DEPLOYMENT and names.LABEL_ROLE in child["metadata"]["labels"]:
                container = child["spec"]["template"]["spec"]["containers"][0]
                container["env"] = [*container.get("env", []), {"name": "NEXT", "value": "1"}]
        return children


class Clock:
    """Time that moves by a second each time it is read, and by leaps."""

    def __init__(self) -> None:
        self._ticks = itertools.count()
        self.leapt = timedelta()

    def __call__(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=next(self._ticks)) + self.leapt


def report(claim: str = "qwen-encoder-cache", **changes: Any) -> CollectorReport:
    """What a collector says that has nothing to complain of."""
    said = {"root_id": "r", "owned": True, "passes": 1, "liveness_valid": True, **changes}
    return CollectorReport(claim=claim, **said)


class World:
    """One cluster and one operator, which can be restarted, also as another build."""

    def __init__(self, cluster: SimulatedCluster | None = None, build: Build | None = None) -> None:
        self.cluster = cluster or SimulatedCluster()
        self.build: Build = build or ThisBuild(operator_image="epd-operator:1")
        self.clock = Clock()
        self.time = 0.0
        """Of the reports' age, in seconds."""
        self.report: CollectorReport | None = report()
        self.start()

    def start(self, build: Build | None = None) -> None:
        """A new operator process: nothing is remembered."""
        self.build = build or self.build
        recorder = Recorder(self.cluster, instance="test")
        problems: Problems = {}
        client = httpx.AsyncClient(transport=httpx.MockTransport(self._collector))
        self.reports = Reports(client, shown=cache.shown, clock=lambda: self.time)
        self.reconciler = Dispatcher(
            deployments=Reconciler(self.cluster, self.build, recorder, self.reports, problems, clock=self.clock),
            claims=ClaimReconciler(self.cluster, self.build, problems),
        )

    def _collector(self, _request: httpx.Request) -> httpx.Response:
        """What any collector's /status answers."""
        if self.report is None:
            raise httpx.ConnectError("refused")
        return httpx.Response(200, content=self.report.model_dump_json(by_alias=True))

    async def reconcile(self, key: str = KEY) -> Outcome:
        """One reconcile, of the one object by default."""
        return await self.reconciler.reconcile(key)

    async def resync(self) -> None:
        """One reconcile of every key."""
        for key in (KEY, *self.keys()):
            await self.reconcile(key)

    def keys(self) -> list[str]:
        """All keys but the one object's: what the watches deliver when they start."""
        found = {key for (kind, _, _), obj in self.cluster.objects.items() for key in keys.keys_of(kind, obj)}
        return sorted(found - {KEY}, key=lambda key: (keys.claim_key(key) is not None, key))

    async def converge(self, *, rounds: int = 12) -> None:
        """Let operator and controllers take turns until a whole round changes nothing."""
        for _ in range(rounds):
            before = self.cluster.version
            try:
                await self.resync()
            except ClusterError:
                continue  # what the queue would try again
            self.controllers()
            if self.cluster.version == before:
                return
        raise AssertionError("does not come to rest")

    def controllers(self) -> None:
        """Everything else in the cluster does its work, at once."""
        for claim in self.cluster.all(kinds.PERSISTENT_VOLUME_CLAIM).values():
            self.cluster.set_status(claim, {"phase": "Bound", "capacity": {"storage": "10Gi"}})
        for deployment in self.cluster.all(kinds.DEPLOYMENT).values():
            self._roll(deployment)
        for job in self.cluster.all(kinds.JOB).values():
            self.cluster.set_status(job, {"succeeded": 1})

    def _roll(self, deployment: Manifest) -> None:
        meta, spec = deployment["metadata"], deployment["spec"]
        text = json.dumps(spec["template"], sort_keys=True)
        prefix = f"{meta['name']}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"
        wanted = {f"{prefix}-{number}" for number in range(spec["replicas"])}
        for name, pod in self.cluster.all(kinds.POD).items():
            if pod["metadata"]["ownerReferences"][0]["uid"] == meta["uid"] and name not in wanted:
                self.cluster.remove(kinds.POD, meta["namespace"], name)
        for name in sorted(wanted - set(self.cluster.all(kinds.POD))):
            self.cluster.put(_pod(name, deployment))
        count = spec["replicas"]
        counters = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), count)
        self.cluster.set_status(deployment, {"observedGeneration": meta["generation"], **counters})

    def copy(self, **faults: Any) -> World:
        """The same cluster once more, with a new operator process."""
        cluster = SimulatedCluster(
            objects=dict(self.cluster.objects),
            history=[dict(self.cluster.objects)],
            version=self.cluster.version,
            **faults,
        )
        return World(cluster, self.build)

    def delete(self, name: str, *, at: datetime | None = None, finalizers: tuple[str, ...] = ()) -> None:
        """The user deletes an EPDDeployment."""
        live = self.cluster.all(kinds.EPD)[name]
        held = [*(live["metadata"].get("finalizers") or ()), *finalizers]
        if not held:
            self.cluster.remove(kinds.EPD, "ai", name)
            return
        when = (at or self.clock()).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.cluster.put({**live, "metadata": {**live["metadata"], "deletionTimestamp": when, "finalizers": held}})

    # --- what tests look at

    def set_spec(self, spec: dict[str, Any]) -> None:
        """The user edits."""
        live = self.cluster.all(kinds.EPD)["qwen"]
        self.cluster.put({**copy.deepcopy(live), "spec": copy.deepcopy(spec)})

    @property
    def status(self) -> dict[str, Any]:
        """`status` of the object."""
        return dict(self.cluster.all(kinds.EPD)["qwen"]["status"])

    def condition(self, type_: str) -> tuple[str, str]:
        """Status and reason of a condition."""
        found = next(c for c in self.status["conditions"] if c["type"] == type_)
        return found["status"], found["reason"]

    def engines(self) -> set[str]:
        """UIDs of the engine pods: another set means a restart."""
        pods = self.cluster.all(kinds.POD).values()
        return {p["metadata"]["uid"] for p in pods if names.LABEL_ROLE in p["metadata"]["labels"]}

    def children(self) -> dict[str, Any]:
        """What the deployment consists of, without what differs between two equal clusters."""
        return {
            f"{kind.kind}/{name}": {
                "labels": obj["metadata"].get("labels"),
                "annotations": obj["metadata"].get("annotations"),
                "spec": obj.get("spec", obj.get("rules", obj.get("roleRef"))),
            }
            for (kind, _, name), obj in self.cluster.objects.items()
            if kind in kinds.CHILDREN and kind != kinds.CONTROLLER_REVISION
        }

    def shown(self) -> dict[str, Any]:
        """The status without times and generations."""
        status = copy.deepcopy(self.status)
        del status["observedGeneration"]
        for condition in status["conditions"]:
            del condition["lastTransitionTime"], condition["observedGeneration"]
        return status


def _pod(name: str, deployment: Manifest) -> Manifest:
    template = deployment["spec"]["template"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": deployment["metadata"]["namespace"],
            "labels": template["metadata"]["labels"],
            "annotations": template["metadata"].get("annotations", {}),
            "ownerReferences": [
                {"kind": "Deployment", "name": "", "uid": deployment["metadata"]["uid"], "controller": True}
            ],
        },
        "spec": {**template["spec"], "nodeName": "n1"},
        "status": {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
    }
