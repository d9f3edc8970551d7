from __future__ import annotations

import copy
from typing import Any

import pytest

from chart.pod_security import violations

CONTEXT = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
POD: dict[str, Any] = {"containers": [{"name": "c", "securityContext": CONTEXT}]}


def changed(path: str, value: Any) -> dict[str, Any]:
    pod = copy.deepcopy(POD)
    *parents, last = path.split(".")
    at = pod
    for key in parents:
        at = at[int(key)] if key.isdigit() else at.setdefault(key, {})
    at[last] = value
    return pod


def test_a_restricted_pod_passes() -> None:
    assert violations(POD) == []


def test_the_pod_stands_in_for_its_containers() -> None:
    container = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    pod = {"securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "Localhost"}}}
    assert violations(pod | {"containers": [{"name": "c", "securityContext": container}]}) == []


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("hostNetwork", True, "hostNetwork"),
        ("hostPID", True, "hostPID"),
        ("hostIPC", True, "hostIPC"),
        ("volumes", [{"name": "v", "hostPath": {"path": "/"}}], "volume v: hostPath"),
        ("securityContext.sysctls", [{"name": "kernel.msgmax", "value": "1"}], "sysctl kernel.msgmax"),
        ("securityContext.runAsUser", 0, "runAsUser 0"),
        ("securityContext.seLinuxOptions", {"type": "spc_t"}, "seLinuxOptions"),
        ("securityContext.appArmorProfile", {"type": "Unconfined"}, "appArmorProfile"),
        ("containers.0.securityContext.privileged", True, "c: privileged"),
        (
            "containers.0.securityContext.allowPrivilegeEscalation",
            None,
            "c: allowPrivilegeEscalation is not false",
        ),
        ("containers.0.securityContext.runAsNonRoot", None, "c: runAsNonRoot is not true"),
        ("containers.0.securityContext.runAsUser", 0, "c: runAsUser 0"),
        ("containers.0.securityContext.capabilities", {}, "c: capabilities do not drop ALL"),
        ("containers.0.securityContext.capabilities.add", ["IPC_LOCK"], "c: capabilities are added"),
        (
            "containers.0.securityContext.seccompProfile",
            {"type": "Unconfined"},
            "c: seccompProfile is not RuntimeDefault or Localhost",
        ),
        ("containers.0.securityContext.procMount", "Unmasked", "c: procMount"),
        ("containers.0.ports", [{"containerPort": 80, "hostPort": 80}], "c: hostPort"),
        ("initContainers", [{"name": "i", "securityContext": CONTEXT | {"privileged": True}}], "i: privileged"),
    ],
)
def test_each_violation_is_named(path: str, value: Any, says: str) -> None:
    assert violations(changed(path, value)) == [says]
