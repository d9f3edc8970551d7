from __future__ import annotations

from typing import Any

import pytest

from epd.api.names import Role
from epd.api.types import Device, Topology
from epd.topology.roles import (
    desired_replicas,
    device_of,
    drain_seconds,
    role_spec_of,
    roles_of,
    rollout_of,
    startup_seconds,
    topology_of,
)
from unit.topology.objects import ABSENT, epd

EXTERNAL = {"mode": "External"}


def test_topologies() -> None:
    assert topology_of(epd().spec) is Topology.E_PD
    assert topology_of(epd({"encode": ABSENT}).spec) is Topology.AGGREGATED
    with pytest.raises(ValueError, match="set prefillDecode"):
        topology_of(epd({"prefillDecode": ABSENT}).spec)


def test_roles_in_apply_order() -> None:
    spec = epd().spec
    assert roles_of(spec) == ((Role.ENCODE, spec.encode), (Role.PREFILL_DECODE, spec.prefill_decode))
    assert [role for role, _ in roles_of(epd({"encode": ABSENT}).spec)] == [Role.PREFILL_DECODE]
    with pytest.raises(KeyError):
        role_spec_of(spec, Role.DECODE)


@pytest.mark.parametrize(
    ("changes", "replicas"),
    [
        ({}, 2),
        ({"encode.replicas": ABSENT}, 1),
        ({"encode.replicas": 0}, 0),
        ({"encode.replicas": ABSENT, "encode.scaling": EXTERNAL}, None),
        ({"suspend": True}, 0),
        ({"encode.replicas": ABSENT, "encode.scaling": EXTERNAL, "suspend": True}, 0),
    ],
)
def test_desired_replicas(changes: dict[str, Any], replicas: int | None) -> None:
    assert desired_replicas(epd(changes).spec, Role.ENCODE) == replicas


@pytest.mark.parametrize(
    ("changes", "device"),
    [
        ({}, Device.CUDA),
        ({"encode.resources": {"limits": {"nvidia.com/mig-1g.10gb": 1}}}, Device.CUDA),
        ({"encode.resources": {"requests": {"amd.com/gpu": 1}}}, Device.ROCM),
        ({"encode.resources": {"limits": {"gpu.intel.com/xe": 1}}}, None),
        ({"encode.resources": {"limits": {"cpu": 4, "memory": "8Gi"}}}, Device.CPU),
        ({"encode.resources": ABSENT}, Device.CPU),
        ({"encode.resources": ABSENT, "engine.device": "CUDA"}, Device.CUDA),
        ({"engine.device": "CPU"}, Device.CPU),
        ({"encode.resources": ABSENT, "encode.podTemplate": {"spec": {"resourceClaims": [{"name": "gpu"}]}}}, None),
        ({"encode.resources": ABSENT, "engine.podTemplate": {"spec": {"resourceClaims": [{"name": "gpu"}]}}}, None),
        ({"encode.resources": ABSENT, "engine.podTemplate": {"spec": None}}, Device.CPU),
    ],
)
def test_device(changes: dict[str, Any], device: Device | None) -> None:
    assert device_of(epd(changes).spec, Role.ENCODE) is device


@pytest.mark.parametrize(
    ("changes", "rollout"),
    [
        ({}, (0, 1)),
        ({"encode.replicas": 1}, (1, 0)),
        ({"encode.replicas": ABSENT}, (1, 0)),
        ({"encode.replicas": ABSENT, "encode.scaling": EXTERNAL}, (1, 0)),
        ({"encode.resources": ABSENT}, (1, 0)),
        ({"encode.resources": {"limits": {"gpu.intel.com/xe": 1}}}, (0, 1)),
        ({"encode.rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}}, (2, 0)),
        ({"encode.rollingUpdate": {"maxSurge": "50%"}}, ("50%", 1)),
        ({"encode.rollingUpdate": {"maxUnavailable": 0}}, (1, 0)),
        ({"encode.rollingUpdate": {"maxUnavailable": "0%"}}, (1, "0%")),
        ({"encode.replicas": 1, "encode.rollingUpdate": {"maxSurge": 0}}, (0, 1)),
        ({"encode.replicas": 1, "encode.rollingUpdate": {"maxSurge": "0%"}}, ("0%", 1)),
        ({"encode.rollingUpdate": {}}, (0, 1)),
    ],
)
def test_rollout(changes: dict[str, Any], rollout: tuple[int | str, int | str]) -> None:
    assert rollout_of(epd(changes).spec, Role.ENCODE) == rollout


@pytest.mark.parametrize(
    ("changes", "encode", "prefill_decode"),
    [
        ({}, 60, 600),
        ({"proxy.timeouts.request": "1h30m"}, 60, 5400),
        ({"encode.drainTimeout": "10s", "prefillDecode.drainTimeout": "20m"}, 10, 1200),
    ],
)
def test_drain(changes: dict[str, Any], encode: int, prefill_decode: int) -> None:
    spec = epd(changes).spec
    assert (drain_seconds(spec, Role.ENCODE), drain_seconds(spec, Role.PREFILL_DECODE)) == (encode, prefill_decode)


def test_startup() -> None:
    spec = epd({"encode.startupTimeout": "45m"}).spec
    assert (startup_seconds(spec, Role.ENCODE), startup_seconds(spec, Role.PREFILL_DECODE)) == (2700, 1800)
