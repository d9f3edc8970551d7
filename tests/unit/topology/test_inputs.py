from __future__ import annotations

from typing import Any

import pytest

from epd.api.names import Role
from epd.topology import inputs
from epd.topology.inputs import role_inputs
from unit.topology.objects import ABSENT, epd

BOTH, ENCODE, PREFILL_DECODE = {"encode", "prefill-decode"}, {"encode"}, {"prefill-decode"}
NONE: set[str] = set()
TEMPLATE = "encoderCache.volume.volumeClaimTemplate.spec"

CHANGED: list[tuple[dict[str, Any], set[str]]] = [
    ({"encode.replicas": 7}, NONE),
    ({"encode.replicas": ABSENT, "encode.scaling": {"mode": "External"}}, NONE),
    ({"encode.rollingUpdate": {"maxSurge": 1}}, NONE),
    ({"encode.port": 8000}, NONE),  # its default
    ({"engine.args": []}, NONE),
    ({"paused": True}, NONE),
    ({"suspend": True}, NONE),
    ({"proxy.replicas": 5}, NONE),
    ({"proxy.limits": {"maxInFlight": 5}}, NONE),
    ({"proxy.timeouts.encode": "5m"}, NONE),
    ({"proxy.media.maxBodySize": "1Gi"}, NONE),
    ({"proxy.resources": {"limits": {"memory": "2Gi"}}}, NONE),
    ({"encoderCache.reclaimPolicy": "Retain"}, NONE),
    ({"encoderCache.garbageCollection": {"maxSize": "1Gi", "dryRun": True, "podTemplate": {"a": 1}}}, NONE),
    ({"encoderCache.garbageCollection": {"minIdle": "1h"}}, BOTH),
    ({"encoderCache.connector": "Example"}, BOTH),
    ({f"{TEMPLATE}.resources": {"requests": {"storage": "200Gi"}}}, NONE),
    ({f"{TEMPLATE}.storageClassName": "other"}, NONE),
    ({f"{TEMPLATE}.accessModes": ["ReadWriteOnce"]}, BOTH),
    ({"encoderCache.salt": "2"}, BOTH),
    ({"encoderCache.extraConfig": {"a": 1}}, BOTH),
    ({"encoderCache.volume": {"persistentVolumeClaim": {"claimName": "ec"}}}, BOTH),
    ({"model.revision": "other"}, BOTH),
    ({"engine.image": "vllm/vllm-openai:v0.33.1"}, BOTH),
    ({"engine.podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}}, BOTH),
    ({"engine.tls": {"secretName": "a"}}, BOTH),
    ({"imagePullSecrets": [{"name": "s"}]}, BOTH),
    ({"securityContext": {"runAsNonRoot": True}}, BOTH),
    ({"restartedAt": "now"}, BOTH),
    ({"proxy.media.allowedDomains": ["a.example"]}, BOTH),
    ({"proxy.timeouts.request": "1h"}, PREFILL_DECODE),
    ({"proxy.timeouts.request": "1h", "prefillDecode.drainTimeout": "5m"}, PREFILL_DECODE),
    ({"encode.drainTimeout": "5m"}, ENCODE),
    ({"encode.resources": {"limits": {"nvidia.com/gpu": 2}}}, ENCODE),
    ({"prefillDecode.podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}}, PREFILL_DECODE),
    ({"encode.args": ["--max-num-seqs", "8"]}, BOTH),
    ({"prefillDecode.env": [{"name": "X", "value": "1"}]}, BOTH),
]


@pytest.mark.parametrize(("changes", "roles"), CHANGED)
def test_what_changes_the_hash_of_which_role(changes: dict[str, Any], roles: set[str]) -> None:
    changed = {
        str(role)
        for role in (Role.ENCODE, Role.PREFILL_DECODE)
        if role_inputs(epd(changes), role) != role_inputs(epd(), role)
    }
    assert changed == roles


def test_a_request_timeout_that_feeds_no_drain_changes_nothing() -> None:
    drain: dict[str, Any] = {"prefillDecode.drainTimeout": "5m"}
    one, other = epd(drain), epd(drain | {"proxy.timeouts.request": "1h"})
    assert role_inputs(one, Role.PREFILL_DECODE) == role_inputs(other, Role.PREFILL_DECODE)


def test_whom_the_proxy_believes_restarts_no_engine() -> None:
    one, other = ({"engine.tls": {"secretName": "a"} | name} for name in ({}, {"serverName": "b"}))
    for role in (Role.ENCODE, Role.PREFILL_DECODE):
        assert role_inputs(epd(one), role) == role_inputs(epd(other), role)


def test_names_of_objects_count() -> None:
    assert role_inputs(epd(), Role.ENCODE) != role_inputs(epd(name="other"), Role.ENCODE)


def test_this_version_hashes_as_the_last_one_did() -> None:
    """Fails when an upgrade of the operator would restart every engine."""
    example = epd({"encoderCache.connector": "Example"})  # as the API server wrote it into every object
    assert role_inputs(example, Role.ENCODE) == "b2a79901a069dd10"
    assert role_inputs(example, Role.PREFILL_DECODE) == "4e74bcadd04e85f1"
    assert role_inputs(epd(), Role.ENCODE) == "b96f1527806e9a82"


def test_nothing_that_this_version_decides_enters() -> None:
    """Model version and flags are this version's judgement; the module must not use them."""
    assert not {"model_version", "flags", "harmless", "engine_args"} & set(vars(inputs))


def test_the_example_connector_has_no_use_for_min_idle() -> None:
    example: dict[str, Any] = {"encoderCache.connector": "Example"}
    idle = example | {"encoderCache.garbageCollection": {"minIdle": "1h"}}
    assert role_inputs(epd(example), Role.ENCODE) == role_inputs(epd(idle), Role.ENCODE)
