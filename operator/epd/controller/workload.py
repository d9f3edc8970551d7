"""How far one Deployment is: from its counters, conditions and pods to one finding.

Pure. The counters are compared as `kubectl rollout status` does (k8s.io/kubectl pkg/polymorphichelpers).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from epd.api.names import Reason
from epd.controller.conditions import Finding
from epd.controller.kinds import Manifest, name_of
from epd.controller.pods import Workload, worst


def progress(
    live: Manifest | None,
    pods: tuple[Manifest, ...],
    events: Iterable[Manifest],
    *,
    field: str,
    container: str,
    patience: str,
    suspended: bool,
    tunable: bool = True,
) -> Finding:
    """What to say of a Deployment. `patience` tells how long starting may take; `field` is its place in the spec, and
    `tunable` whether it has a `rollingUpdate`."""
    if live is None:
        return Finding.false(Reason.STARTING, "its Deployment is being made")
    status: dict[str, Any] = live.get("status") or {}
    want = int(live["spec"].get("replicas", 1))
    if int(status.get("observedGeneration") or 0) < int(live["metadata"]["generation"]):
        return Finding.false(Reason.ROLLING_OUT, f"Deployment {name_of(live)} has a change that is not yet taken up")
    updated, total, ready, available = (
        int(status.get(counter) or 0)
        for counter in ("updatedReplicas", "replicas", "readyReplicas", "availableReplicas")
    )
    if updated == total == ready == available == want:
        return _as_asked(want, suspended=suspended)
    if (refused := refused_pods(status)) is not None:
        return refused
    workload = Workload(field=field, container=container, surging=total > want, tunable=tunable)
    if (trouble := worst(pods, workload, events)) is not None:
        return Finding.false(trouble.reason, f"{min(ready, want)} of {want} pods are ready; {trouble.message}")
    if total > updated or updated > want:
        return Finding.false(
            Reason.ROLLING_OUT, f"{updated} of {want} pods are updated, {ready} pods are ready; {patience}"
        )
    return Finding.false(Reason.STARTING, f"{ready} of {want} pods are ready; {patience}")


def _as_asked(want: int, *, suspended: bool) -> Finding:
    if want == 0:
        return Finding.true(Reason.SUSPENDED if suspended else Reason.AS_SPECIFIED, "scaled to zero")
    return Finding.true(Reason.AS_SPECIFIED, f"{want} of {want} pods are ready")


def refused_pods(status: dict[str, Any]) -> Finding | None:
    """What keeps pods from being made at all, by the status of their Deployment: quota, policy."""
    for condition in status.get("conditions") or ():
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            return Finding.false(Reason.FAILED_CREATE, _with_fix(str(condition.get("message", ""))))
    return None


def _with_fix(words: str) -> str:
    if "violates PodSecurity" in words:
        fix = "Label the namespace with a pod-security.kubernetes.io/enforce level that allows it, or mend podTemplate."
    elif "exceeded quota" in words:
        fix = "Raise the namespace's ResourceQuota or ask for less."
    else:
        fix = "kubectl describe replicaset has the details."
    return f"pods are refused: {words}. {fix}"
