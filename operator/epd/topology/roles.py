"""Roles of a spec and the defaults that depend on other fields. Pure; never written back into the spec."""

from __future__ import annotations

from typing import Final, NamedTuple

from epd.api.names import Role
from epd.api.quantity import duration_seconds
from epd.api.types import Device, JSONObject, RoleSpec, ScalingMode, Spec, Topology

ENCODE_DRAIN_SECONDS: Final = 60
"""An encoder's longest piece of work is one request's media items; the proxy retries what is cut off."""

_DEVICE_DOMAINS: Final = {"nvidia.com/": Device.CUDA, "amd.com/": Device.ROCM}


class Rollout(NamedTuple):
    """`maxSurge` and `maxUnavailable` of a Deployment."""

    max_surge: int | str
    max_unavailable: int | str


def topology_of(spec: Spec) -> Topology:
    """Return which stages are separate workloads.

    Raises:
        ValueError: the roles given form no topology.
    """
    if spec.prefill_decode is None:
        raise ValueError("spec: set prefillDecode; alone it is aggregated, with encode it is E|PD")
    return Topology.AGGREGATED if spec.encode is None else Topology.E_PD


def roles_of(spec: Spec) -> tuple[tuple[Role, RoleSpec], ...]:
    """Return the roles that the spec has, in the order in which they are applied."""
    given = ((Role.ENCODE, spec.encode), (Role.PREFILL_DECODE, spec.prefill_decode))
    return tuple((role, role_spec) for role, role_spec in given if role_spec is not None)


def role_spec_of(spec: Spec, role: Role) -> RoleSpec:
    """Return the spec of one role.

    Raises:
        KeyError: the spec has no such role.
    """
    return dict(roles_of(spec))[role]


def desired_replicas(spec: Spec, role: Role) -> int | None:
    """Return how many pods the role shall have; None when a scaler decides. Suspended is 0, whoever scales."""
    role_spec = role_spec_of(spec, role)
    if spec.suspend:
        return 0
    if role_spec.scaling.mode is ScalingMode.EXTERNAL:
        return None
    return 1 if role_spec.replicas is None else role_spec.replicas


def device_of(spec: Spec, role: Role) -> Device | None:
    """Return what the role's engines compute on; None for an accelerator whose kind we can't tell.

    `Auto` goes by the resources asked for. Devices of dynamic resource allocation carry no kind in the pod.
    """
    if spec.engine.device is not Device.AUTO:
        return spec.engine.device
    role_spec = role_spec_of(spec, role)
    asked = role_spec.resources.limits | role_spec.resources.requests
    for domain, device in _DEVICE_DOMAINS.items():
        if any(name.startswith(domain) for name in asked):
            return device
    unknown_device = any("/" in name for name in asked)
    claimed = any((template.get("spec") or {}).get("resourceClaims") for template in _pod_templates(spec, role_spec))
    return None if unknown_device or claimed else Device.CPU


def _pod_templates(spec: Spec, role_spec: RoleSpec) -> tuple[JSONObject, ...]:
    return spec.engine.pod_template, role_spec.pod_template


def rollout_of(spec: Spec, role: Role) -> Rollout:
    """Return how a rollout replaces the role's pods.

    With devices and more than one pod, one at a time gives its device to its successor, so that no spare device is
    needed. Everything else starts the new pod first, so that there is no gap; that includes roles that a scaler sizes,
    since it may have set 1.
    """
    role_spec = role_spec_of(spec, role)
    given = role_spec.rolling_update
    surge, unavailable = (given.max_surge, given.max_unavailable) if given else (None, None)
    in_place = device_of(spec, role) is not Device.CPU and (role_spec.replicas or 1) > 1
    default = Rollout(0, 1) if in_place else Rollout(1, 0)
    # One of the two given as zero: the other one has to move, or the API server refuses the Deployment.
    if surge is None:
        surge = 1 if unavailable in (0, "0%") else default.max_surge
    if unavailable is None:
        unavailable = 1 if surge in (0, "0%") else default.max_unavailable
    return Rollout(surge, unavailable)


def drain_seconds(spec: Spec, role: Role) -> int:
    """Return how long a stopping engine may finish what it has: the longest request, for roles that generate."""
    role_spec = role_spec_of(spec, role)
    if role_spec.drain_timeout is not None:
        return duration_seconds(role_spec.drain_timeout)
    return ENCODE_DRAIN_SECONDS if role is Role.ENCODE else duration_seconds(spec.proxy.timeouts.request)


def startup_seconds(spec: Spec, role: Role) -> int:
    """Return how long an engine may take from its start until it answers."""
    return duration_seconds(role_spec_of(spec, role).startup_timeout)
