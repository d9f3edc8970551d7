"""Objects as the API server lists them, and what the collector keeps of them, for tests."""

from __future__ import annotations

import copy
from typing import Any

from epd.collector.seen import Root, SeenEPD, see_epd
from unit.collector.fake_api import FakeApi
from unit.topology.objects import E_PD

EPDS = "/apis/epd.dev/v1alpha1/namespaces/ai/epddeployments"
DEPLOYMENTS = "/apis/apps/v1/namespaces/ai/deployments"
REPLICASETS = "/apis/apps/v1/namespaces/ai/replicasets"
PODS = "/api/v1/namespaces/ai/pods"
CLAIM = "/api/v1/namespaces/ai/persistentvolumeclaims/ec"

ROOT = Root(claim="ec")
VERSION = "v1-qwen2-5-vl-3b-instruct-"


def raw_epd(
    name: str = "qwen",
    *,
    claim: str = "ec",
    sub_path: str = "",
    collection: dict[str, Any] | None = None,
    connector: str = "Managed",
    reclaim: str = "Delete",
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """An EPDDeployment whose cache lies on a brought claim; `spec` replaces whole members."""
    given = copy.deepcopy(E_PD) | {
        "encoderCache": {
            "connector": connector,
            "garbageCollection": collection or {},
            "reclaimPolicy": reclaim,
            "volume": {"persistentVolumeClaim": {"claimName": claim} | ({"subPath": sub_path} if sub_path else {})},
        }
    }
    return {
        "kind": "EPDDeployment",
        "metadata": {"name": name, "uid": f"uid-{name}"} | (metadata or {}),
        "spec": given | (spec or {}),
        "status": status or {},
    }


def epd(name: str = "qwen", **changes: Any) -> SeenEPD:
    """What is kept of `raw_epd`."""
    return see_epd(raw_epd(name, **changes))


def raw_pod(uid: str, **labels: str) -> dict[str, Any]:
    """A pod; `epd`, `version` and `role` are its labels."""
    keys = {"epd": "epd.dev/name", "version": "epd.dev/model-version", "role": "llm-d.ai/role"}
    return {"metadata": {"name": f"pod-{uid}", "uid": uid, "labels": {keys[k]: v for k, v in labels.items()}}}


def raw_workload(version: str, replicas: int | None = 1) -> dict[str, Any]:
    """A Deployment or ReplicaSet."""
    spec: dict[str, Any] = {"template": {"metadata": {"labels": {"epd.dev/model-version": version}}}}
    return {"metadata": {"name": "w"}, "spec": spec | ({} if replicas is None else {"replicas": replicas})}


def namespace_ai() -> FakeApi:
    """A namespace with a claim, one EPDDeployment that uses it, and what else names versions."""
    return FakeApi(
        collections={
            EPDS: [raw_epd()],
            DEPLOYMENTS: [raw_workload("a"), raw_workload("b", 0)],
            REPLICASETS: [raw_workload("c")],
            PODS: [raw_pod("1", version="d"), raw_pod("2")],
        },
        objects={
            CLAIM: {
                "kind": "PersistentVolumeClaim",
                "metadata": {"uid": "u", "annotations": {"epd.dev/adopt-encoder-cache-root": "r"}},
                "spec": {"resources": {"requests": {"storage": "1Gi"}}},
            }
        },
    )
