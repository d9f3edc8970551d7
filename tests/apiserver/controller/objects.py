"""EPDDeployments for the tests, and what a deployment controller would report of their children."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

from apiserver.controller.operator import Operator, eventually
from apiserver.server import Namespace
from epd.api import names
from epd.manifests.connector_sources import connector_sources
from epd.topology.canonical import digest

QUIET_SECONDS = 2.0
"""A write comes back as a watch event, and that as a reconcile, within half of this on a crowded machine."""

SPEC: dict[str, Any] = {
    "model": {"name": "Qwen/Qwen2.5-VL-3B-Instruct"},
    "engine": {"image": "vllm/vllm-openai:v0.33.0"},
    "encode": {"replicas": 2, "resources": {"limits": {"nvidia.com/gpu": 1}}},
    "prefillDecode": {"replicas": 3, "resources": {"limits": {"nvidia.com/gpu": 1}}},
    "encoderCache": {
        "volume": {
            "volumeClaimTemplate": {
                "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "10Gi"}}}
            }
        }
    },
}

CHILDREN = {
    f"configmap/{names.connector_config_map('qwen', digest(connector_sources(), length=10))}",
    "serviceaccount/qwen-engine",
    "serviceaccount/qwen-proxy",
    "role.rbac.authorization.k8s.io/qwen-proxy",
    "rolebinding.rbac.authorization.k8s.io/qwen-proxy",
    "persistentvolumeclaim/qwen-encoder-cache",
    "service/qwen",
    "deployment.apps/qwen-encode",
    "deployment.apps/qwen-prefilldecode",
    "deployment.apps/qwen-proxy",
}
COLLECTOR = {
    "serviceaccount/qwen-encoder-cache-collector",
    "role.rbac.authorization.k8s.io/qwen-encoder-cache-collector",
    "rolebinding.rbac.authorization.k8s.io/qwen-encoder-cache-collector",
    "deployment.apps/qwen-encoder-cache-collector",
}
"""Made as soon as an engine pod that mounts the claim has a node."""
KINDS = "serviceaccounts,roles,rolebindings,pvc,services,configmaps,deployments,jobs,controllerrevisions"


def epd(spec: dict[str, Any] | None = None, *, name: str = "qwen", **changes: Any) -> dict[str, Any]:
    """An object; top-level members of the spec replaced, None removes one."""
    merged = {**copy.deepcopy(SPEC if spec is None else spec), **changes}
    return {
        "apiVersion": "epd.dev/v1alpha1",
        "kind": "EPDDeployment",
        "metadata": {"name": name},
        "spec": {key: value for key, value in merged.items() if value is not None},
    }


def children(namespace: Namespace) -> set[str]:
    """Labelled objects as `kubectl get -o name` prints them, revisions left out."""
    names = namespace.kubectl("get", KINDS, "-l", "epd.dev/name=qwen", "-o", "name").stdout.split()
    return {name for name in names if not name.startswith("controllerrevision")}


def collectors(namespace: Namespace) -> dict[str, list[str]]:
    """Names of the owners of each collector."""
    found = namespace.get("deployments", "-l", names.LABEL_COLLECTOR)["items"]
    return {d["metadata"]["name"]: [o["name"] for o in d["metadata"].get("ownerReferences", [])] for d in found}


def versions(namespace: Namespace) -> dict[str, str]:
    """resourceVersion of everything in the namespace that the operator writes, the parent included."""
    found = namespace.get(f"{KINDS},epd,events")["items"]
    return {f"{o['kind']}/{o['metadata']['name']}": o["metadata"]["resourceVersion"] for o in found}


def settled(namespace: Namespace, operator: Operator) -> None:
    """Wait until for `QUIET_SECONDS` nothing was written and nothing was reconciled, nor waits to be."""
    before: tuple[dict[str, str], float] | None = None

    def still() -> bool:
        nonlocal before
        now = versions(namespace), operator.metric("controller_runtime_reconcile_total")
        waiting = operator.metric("workqueue_depth")
        same, before = now == before and not waiting, now
        if not same:
            time.sleep(QUIET_SECONDS)
        return same

    eventually(still)


def condition(namespace: Namespace, type_: str, *, name: str = "qwen") -> tuple[str, str]:
    """Status and reason; ("", "") before there is one."""
    found = namespace.get("epd", name).get("status", {}).get("conditions", [])
    return next(((c["status"], c["reason"]) for c in found if c["type"] == type_), ("", ""))


def roll_out(namespace: Namespace) -> None:
    """Play the other controllers: claims bound and checked, every Deployment as asked, one ready pod each."""
    for claim in namespace.get("pvc")["items"]:
        _status(namespace, "pvc", claim["metadata"]["name"], {"phase": "Bound", "capacity": {"storage": "10Gi"}})
    for deployment in namespace.get("deployments")["items"]:
        count, name = deployment["spec"]["replicas"], deployment["metadata"]["name"]
        counters = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), count)
        _status(namespace, "deployment", name, {"observedGeneration": deployment["metadata"]["generation"], **counters})
        _pod(namespace, name, deployment["spec"]["template"])


def finish_jobs(namespace: Namespace) -> None:
    """Every check of the claim succeeds."""
    for job in namespace.get("jobs")["items"]:
        complete = [{"type": kind, "status": "True"} for kind in ("SuccessCriteriaMet", "Complete")]
        now = "2026-01-01T00:00:00Z"
        status = {"succeeded": 1, "startTime": now, "completionTime": now, "conditions": complete}
        _status(namespace, "job", job["metadata"]["name"], {**status, "uncountedTerminatedPods": {}})


def _status(namespace: Namespace, kind: str, name: str, status: dict[str, Any]) -> None:
    patch = json.dumps({"status": status})
    namespace.kubectl("patch", kind, name, "--subresource=status", "--type=merge", "-p", patch)


def _pod(namespace: Namespace, name: str, template: dict[str, Any]) -> None:
    kept = ("name", "image", "ports")
    containers = [{key: c[key] for key in kept if key in c} for c in template["spec"]["containers"]]
    metadata = {"name": f"{name}-0", "labels": template["metadata"]["labels"]}
    volumes = [v for v in template["spec"].get("volumes", []) if "persistentVolumeClaim" in v]
    # Nobody makes the default service account here, and the admission plugin would wait for it.
    account = template["spec"].get("serviceAccountName")
    spec = {"nodeName": "n1", "serviceAccountName": account, "automountServiceAccountToken": False, "volumes": volumes}
    namespace.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, "containers": containers}}
    )
    _status(namespace, "pod", f"{name}-0", {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})
