from __future__ import annotations

from typing import Any

import pytest

from epd.controller.conditions import Finding
from epd.controller.workload import progress
from unit.controller import objects

LATER = "engines load"


def deployment(want: int, *, seen: int = 1, conditions: Any = (), **counters: int) -> dict[str, Any]:
    status = {"observedGeneration": seen, "conditions": list(conditions), **counters}
    return {"metadata": {"name": "qwen-encode", "generation": 1}, "spec": {"replicas": want}, "status": status}


def counted(updated: int, total: int, ready: int) -> dict[str, int]:
    return {"updatedReplicas": updated, "replicas": total, "readyReplicas": ready, "availableReplicas": ready}


def failure(message: str) -> dict[str, str]:
    return {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}


NO_GPU = (objects.unschedulable("0/1 nodes are available: 1 Insufficient nvidia.com/gpu."),)
CASES: list[tuple[str, dict[str, Any] | None, tuple[dict[str, Any], ...], Finding]] = [
    ("absent", None, (), Finding("False", "Starting", "its Deployment is being made")),
    ("unseen change", deployment(2, seen=0, **counted(2, 2, 2)), (),
     Finding("False", "RollingOut", "Deployment qwen-encode has a change that is not yet taken up")),
    ("as asked", deployment(2, **counted(2, 2, 2)), (), Finding("True", "AsSpecified", "2 of 2 pods are ready")),
    ("at zero", deployment(0), (), Finding("True", "AsSpecified", "scaled to zero")),
    ("starting", deployment(2, **counted(2, 2, 1)), (),
     Finding("False", "Starting", "1 of 2 pods are ready; engines load")),
    ("rolling", deployment(2, **counted(1, 3, 2)), (),
     Finding("False", "RollingOut", "1 of 2 pods are updated, 2 pods are ready; engines load")),
    ("scaling down", deployment(1, **counted(3, 3, 3)), (),
     Finding("False", "RollingOut", "3 of 1 pods are updated, 3 pods are ready; engines load")),
    ("quota", deployment(2, conditions=[failure("pods is forbidden: exceeded quota: q")]), (),
     Finding("False", "FailedCreate", "pods are refused: pods is forbidden: exceeded quota: q. Raise the namespace's "
             "ResourceQuota or ask for less.")),
    ("pod security", deployment(2, conditions=[failure('violates PodSecurity "restricted:latest"')]), (),
     Finding("False", "FailedCreate", 'pods are refused: violates PodSecurity "restricted:latest". Label the namespace '
             "with a pod-security.kubernetes.io/enforce level that allows it, or mend podTemplate.")),
    ("webhook", deployment(2, conditions=[failure("denied")]), (),
     Finding("False", "FailedCreate", "pods are refused: denied. kubectl describe replicaset has the details.")),
    ("no room to surge", deployment(2, **counted(1, 3, 2)), NO_GPU,
     Finding("False", "InsufficientCapacityForSurge", "2 of 2 pods are ready; pod qwen-encode-1 is Pending: "
             "Insufficient nvidia.com/gpu for one more pod than before (0/1 nodes are available: 1 Insufficient "
             "nvidia.com/gpu.) Free one, or set spec.encode.rollingUpdate: {maxSurge: 0, maxUnavailable: 1}.")),
    ("no room at all", deployment(2, **counted(2, 2, 1)), NO_GPU,
     Finding("False", "InsufficientDevices", "1 of 2 pods are ready; pod qwen-encode-1 is Pending: Insufficient "
             "nvidia.com/gpu (0/1 nodes are available: 1 Insufficient nvidia.com/gpu.) Free a device, add a node that "
             "has one, or lower spec.encode.replicas.")),
]  # fmt: skip


def test_a_rollout_that_no_field_says_names_none() -> None:
    surging = deployment(2, **counted(1, 3, 2))
    crowded = (objects.unschedulable("0/1 nodes are available: 1 Insufficient cpu."),)

    found = progress(
        surging, crowded, (), field="proxy", container="proxy", patience=LATER, suspended=False, tunable=False
    )

    assert found == Finding(
        "False",
        "InsufficientCapacityForSurge",
        "2 of 2 pods are ready; pod qwen-encode-1 is Pending: Insufficient cpu for one more pod than before (0/1 nodes "
        "are available: 1 Insufficient cpu.) Make room on a node, or lower spec.proxy.resources.requests.",
    )


@pytest.mark.parametrize(("live", "pods", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_progress(live: dict[str, Any] | None, pods: tuple[dict[str, Any], ...], expected: Finding) -> None:
    found = progress(live, pods, (), field="encode", container="engine", patience=LATER, suspended=False)
    assert found == expected


def test_suspended_at_zero_is_as_asked() -> None:
    found = progress(deployment(0), (), (), field="encode", container="engine", patience=LATER, suspended=True)
    assert found == Finding("True", "Suspended", "scaled to zero")
