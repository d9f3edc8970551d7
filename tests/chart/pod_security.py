"""The Pod Security Standard "restricted" as a check on a pod spec, written from the Kubernetes documentation.

For Linux pods. Covers every control of the levels baseline and restricted that a pod spec can break.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

VOLUME_TYPES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
SAFE_SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_syncookies",
}
SELINUX_TYPES = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
PROFILES = {"RuntimeDefault", "Localhost"}


def violations(spec: dict[str, Any]) -> list[str]:
    """What keeps the pod out of a restricted namespace, in words; empty when nothing does."""
    pod = spec.get("securityContext") or {}
    found = [*_pod(spec, pod)]
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(group) or []:
            found += [f"{container['name']}: {reason}" for reason in _container(container, pod)]
    return found


def _pod(spec: dict[str, Any], context: dict[str, Any]) -> Iterator[str]:
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield field
    for volume in spec.get("volumes") or []:
        yield from (f"volume {volume['name']}: {kind}" for kind in volume if kind not in {"name", *VOLUME_TYPES})
    for sysctl in context.get("sysctls") or []:
        if sysctl["name"] not in SAFE_SYSCTLS:
            yield f"sysctl {sysctl['name']}"
    if context.get("runAsUser") == 0:
        yield "runAsUser 0"
    yield from _selinux_and_apparmor(context)


def _container(container: dict[str, Any], pod: dict[str, Any]) -> Iterator[str]:
    context = container.get("securityContext") or {}
    if context.get("privileged"):
        yield "privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation is not false"
    if context.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True:
        yield "runAsNonRoot is not true"
    if context.get("runAsUser") == 0:
        yield "runAsUser 0"
    capabilities = context.get("capabilities") or {}
    if "ALL" not in (capabilities.get("drop") or []):
        yield "capabilities do not drop ALL"
    if set(capabilities.get("add") or []) - {"NET_BIND_SERVICE"}:
        yield "capabilities are added"
    profile = context.get("seccompProfile", pod.get("seccompProfile")) or {}
    if profile.get("type") not in PROFILES:
        yield "seccompProfile is not RuntimeDefault or Localhost"
    if context.get("procMount", "Default") != "Default":
        yield "procMount"
    if any(port.get("hostPort") for port in container.get("ports") or []):
        yield "hostPort"
    yield from _selinux_and_apparmor(context)


def _selinux_and_apparmor(context: dict[str, Any]) -> Iterator[str]:
    selinux = context.get("seLinuxOptions") or {}
    if selinux.get("type", "") not in SELINUX_TYPES or selinux.get("user") or selinux.get("role"):
        yield "seLinuxOptions"
    if (context.get("appArmorProfile") or {}).get("type", "RuntimeDefault") not in PROFILES:
        yield "appArmorProfile"
