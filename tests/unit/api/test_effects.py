"""The table of effects against what the planner really makes of each field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from epd.api.crd import openapi_schema
from epd.api.effects import EFFECTS, Effect, Key, effect
from epd.api.names import Role
from epd.api.types import EPDDeployment
from epd.manifests import Context
from epd.manifests.proxy_deployment import proxy_deployment
from epd.manifests.role_deployment import role_deployment
from epd.topology.inputs import proxy_inputs, role_inputs
from epd.topology.model_version import model_version
from epd.topology.pairing import pairing
from epd.topology.roles import roles_of

CONTEXT = Context(operator_image="registry.example.com/epd-operator:1")

BASE: dict[str, Any] = {
    "metadata": {"name": "demo", "namespace": "ai", "uid": "u"},
    "spec": {
        "model": {"name": "org/model"},
        "engine": {"image": "vllm/vllm-openai:v0.33.0"},
        "encode": {"replicas": 2, "resources": {"limits": {"nvidia.com/gpu": 1}}},
        "prefillDecode": {"replicas": 2, "resources": {"limits": {"nvidia.com/gpu": 1}}},
        "encoderCache": {
            "volume": {
                "volumeClaimTemplate": {
                    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
                }
            }
        },
    },
}

HARMLESS_ARGS, ANY_ARGS = ["--max-num-seqs", "7"], ["--some-new-flag"]
HARMLESS_ENV, ANY_ENV = [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}], [{"name": "ANY", "value": "1"}]

ENGINE_ENV = {"containers": [{"name": "engine", "env": ANY_ENV}]}


def role_samples(path: str) -> dict[str, list[Any]]:
    return {
        f"{path}.replicas": [3],
        f"{path}.scaling.mode": ["External"],
        f"{path}.parallelism.tensor": [2],
        f"{path}.resources.limits": [{"nvidia.com/gpu": 1, "memory": "1Gi"}],
        f"{path}.resources.requests": [{"cpu": 1}],
        f"{path}.port": [8001],
        f"{path}.args": [HARMLESS_ARGS, ANY_ARGS],
        f"{path}.env": [HARMLESS_ENV, ANY_ENV],
        f"{path}.rollingUpdate.maxSurge": [2],
        f"{path}.rollingUpdate.maxUnavailable": [2],
        f"{path}.startupTimeout": ["31m"],
        f"{path}.drainTimeout": ["7m"],
        f"{path}.podTemplate.metadata.labels": [{"team": "a"}],
        f"{path}.podTemplate.metadata.annotations": [{"team": "a"}],
        f"{path}.podTemplate.spec": [{"nodeSelector": {"a": "b"}}, ENGINE_ENV],
    }


TEMPLATE = "encoderCache.volume.volumeClaimTemplate"
COLLECTION = "encoderCache.garbageCollection"

SAMPLES: dict[str, list[Any]] = {
    "model.name": ["org/other"],
    "model.revision": ["abc"],
    "model.servedNames": [["a"]],
    "model.dtype": ["bfloat16"],
    "model.quantization": ["awq"],
    "model.maxModelLen": [4096],
    "model.processorKwargs": [{"a": 1}],
    "model.mediaIOKwargs": [{"video": {"num_frames": 8}}],
    "model.mediaLimits.image": [3],
    "model.mediaLimits.video": [3],
    "model.mediaLimits.audio": [3],
    "model.source.huggingFace.tokenSecretRef": [{"name": "hf", "key": "token"}],
    "model.source.huggingFace.cacheClaim": [{"claimName": "c"}],
    "model.source.huggingFace.offline": [True],
    "model.source.persistentVolumeClaim": [{"claimName": "w"}, {"claimName": "w", "subPath": "a"}],
    "engine.image": ["registry.example.com/vllm-openai:v0.33.0", "vllm/vllm-openai:v0.32.0", "vllm:nightly"],
    "engine.imagePullPolicy": ["Always"],
    "engine.version": ["0.33.1", "0.32.0"],
    "engine.device": ["ROCm", "CPU"],
    "engine.args": [HARMLESS_ARGS, ANY_ARGS],
    "engine.tls.secretName": ["engines"],
    "engine.tls.serverName": ["engine.example"],
    "engine.env": [HARMLESS_ENV, ANY_ENV],
    "engine.podTemplate.metadata.labels": [{"team": "a"}],
    "engine.podTemplate.metadata.annotations": [{"team": "a"}],
    "engine.podTemplate.spec": [{"nodeSelector": {"a": "b"}}, ENGINE_ENV],
    "imagePullSecrets": [[{"name": "a"}]],
    **role_samples("encode"),
    **role_samples("prefillDecode"),
    "encoderCache.connector": ["Custom", "Example"],
    "encoderCache.custom": [{"class": "C", "module": "m"}],
    "encoderCache.extraConfig": [{"local_bytes": 1}],
    "encoderCache.hashAlgorithm": ["SHA256"],
    "encoderCache.salt": ["2"],
    "encoderCache.volume.persistentVolumeClaim": [{"claimName": "ec"}, {"claimName": "ec", "subPath": "a"}],
    f"{TEMPLATE}.metadata.labels": [{"team": "a"}],
    f"{TEMPLATE}.metadata.annotations": [{"team": "a"}],
    f"{TEMPLATE}.spec.resources.requests.storage": ["2Gi"],
    f"{TEMPLATE}.spec.resources.limits.storage": ["2Gi"],
    f"{TEMPLATE}.spec.volumeAttributesClassName": ["fast"],
    "encoderCache.reclaimPolicy": ["Retain"],
    f"{COLLECTION}.enabled": [False],
    f"{COLLECTION}.versionGracePeriod": ["2h"],
    f"{COLLECTION}.entryTTL": ["72h"],
    f"{COLLECTION}.minIdle": ["1h", "10s"],
    f"{COLLECTION}.highWatermarkPercent": [90],
    f"{COLLECTION}.lowWatermarkPercent": [10],
    f"{COLLECTION}.maxSize": ["80Gi"],
    f"{COLLECTION}.dryRun": [True],
    f"{COLLECTION}.evictLiveEntries": [True],
    f"{COLLECTION}.resources.limits": [{"memory": "1Gi"}],
    f"{COLLECTION}.resources.requests": [{"cpu": 1}],
    f"{COLLECTION}.podTemplate.metadata.labels": [{"team": "a"}],
    f"{COLLECTION}.podTemplate.metadata.annotations": [{"team": "a"}],
    f"{COLLECTION}.podTemplate.spec": [{"nodeSelector": {"a": "b"}}],
    "proxy.replicas": [3],
    "proxy.scaling.mode": ["External"],
    "proxy.encoderFailurePolicy": ["Fail"],
    "proxy.affinity": ["Session"],
    "proxy.timeouts.request": ["11m"],
    "proxy.timeouts.encode": ["3m"],
    "proxy.timeouts.idle": ["61s"],
    "proxy.timeouts.queue": ["11s"],
    "proxy.limits.maxInFlight": [7],
    "proxy.limits.maxConnections": [7],
    "proxy.limits.maxFallbackEncodes": [7],
    "proxy.limits.maxPerEngine": [7],
    "proxy.limits.maxQueued": [7],
    "proxy.limits.maxPerTenant": [7],
    "proxy.tls.secretName": ["web"],
    "proxy.auth.apiKeys.secretName": ["tenants"],
    "proxy.auth.tenantIsolation": ["Salted"],
    "proxy.auth.requestPriority": ["Ignore"],
    "proxy.accessLog.policy": ["None", "All"],
    "proxy.accessLog.samplePercent": [5],
    "proxy.cors.allowedOrigins": [["https://a.example.com"]],
    "proxy.service.type": ["NodePort"],
    "proxy.service.port": [8080],
    "proxy.service.annotations": [{"a": "b"}],
    "proxy.media.allowedDomains": [["a.example.com"]],
    "proxy.media.maxBodySize": ["65Mi"],
    "proxy.resources.limits": [{"memory": "2Gi"}],
    "proxy.resources.requests": [{"cpu": 1}],
    "proxy.podTemplate.metadata.labels": [{"team": "a"}],
    "proxy.podTemplate.metadata.annotations": [{"team": "a"}],
    "proxy.podTemplate.spec": [{"nodeSelector": {"a": "b"}}],
    "securityContext": [{"runAsNonRoot": True}, {"runAsUser": 7}],
    "paused": [True],
    "suspend": [True],
    "restartedAt": ["now"],
}

SWITCHED_WHOLE = {
    "model.source.huggingFace.tokenSecretRef",
    "model.source.huggingFace.cacheClaim",
    "model.source.persistentVolumeClaim",
    "encoderCache.custom",
    "encoderCache.volume.persistentVolumeClaim",
    "securityContext",
}
"""Objects that are mutated as a whole: their parts mean nothing alone."""


def fields(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Paths of the spec's leaves: scalars, lists, maps and free objects."""
    if path in SWITCHED_WHOLE or not schema.get("properties"):
        yield path
        return
    for name, child in schema["properties"].items():
        yield from fields(child, f"{path}.{name}" if path else name)


FIELDS = tuple(fields(openapi_schema()["properties"]["spec"]))


REQUIRED = {"engine.tls.serverName": ("engine.tls.secretName", "engines")}
"""Fields that are nothing without another one."""


def base(path: str) -> EPDDeployment:
    """What the field at `path` is changed in."""
    return with_field(*REQUIRED[path]) if path in REQUIRED else EPDDeployment.model_validate(BASE)


def with_field(path: str, value: Any) -> EPDDeployment:
    manifest = base(path).model_dump(mode="json", by_alias=True, exclude_unset=True)
    *parents, last = path.split(".")
    target = manifest["spec"]
    for parent in parents:
        target = target.setdefault(parent, {})
    target[last] = value
    if path == "encoderCache.volume.persistentVolumeClaim":
        del target["volumeClaimTemplate"]
    if path == "encoderCache.custom" or value == "Custom":
        target |= {"connector": "Custom", "custom": {"class": "C", "module": "m"}}
    return EPDDeployment.model_validate(manifest)


def keys(epd: EPDDeployment) -> dict[Key, str]:
    """What runs, as far as a change of it restarts pods or starts a cache anew."""
    children = {Key.PROXY: proxy_deployment(epd, CONTEXT)}
    for role, _ in roles_of(epd.spec):
        children[Key(role)] = role_deployment(epd, role, CONTEXT)
    rendered = {key: json.dumps(child["spec"]["template"], sort_keys=True) for key, child in children.items()}
    return rendered | {Key.MODEL_VERSION: model_version(epd.spec), Key.PAIRING: pairing(epd)}


def differences(before: EPDDeployment, after: EPDDeployment) -> frozenset[Key]:
    old, new = keys(before), keys(after)
    return frozenset(key for key in Key if old.get(key) != new.get(key))


def changes(path: str, value: Any) -> frozenset[Key]:
    return differences(base(path), with_field(path, value))


def without(*paths: str) -> EPDDeployment:
    spec = {name: value for name, value in BASE["spec"].items() if name not in paths}
    return EPDDeployment.model_validate(BASE | {"spec": spec})


@pytest.mark.parametrize("path", FIELDS)
def test_every_field_has_an_effect_and_a_sample(path: str) -> None:
    found = effect(path)

    assert found is not None
    assert (path in SAMPLES) is (found is not Effect.REFUSED)


@pytest.mark.parametrize("path", SAMPLES)
def test_effect_is_what_the_planner_does(path: str) -> None:
    found = effect(path)
    assert found is not None
    change = found.value
    seen = [changes(path, value) for value in SAMPLES[path]]

    assert [keys for keys in seen if not change.always <= keys] == []
    assert [keys for keys in seen if not keys <= change.always | change.maybe] == []
    assert frozenset().union(*seen) == change.always | change.maybe


@pytest.mark.parametrize("path", SAMPLES)
def test_a_changed_pod_template_is_a_changed_input(path: str) -> None:
    """Or the controller would go on applying what it rendered before."""
    before = base(path)
    for value in SAMPLES[path]:
        after = with_field(path, value)
        for role, key in ((Role.ENCODE, Key.ENCODE), (Role.PREFILL_DECODE, Key.PREFILL_DECODE)):
            if keys(before)[key] != keys(after)[key]:
                assert role_inputs(before, role) != role_inputs(after, role)


@pytest.mark.parametrize("path", SAMPLES)
def test_a_changed_proxy_is_a_changed_input(path: str) -> None:
    """And the other way round: or a paused object would seem to be as its spec says, or not to be."""
    before = base(path)
    for value in SAMPLES[path]:
        after = with_field(path, value)
        same = keys(before)[Key.PROXY] == keys(after)[Key.PROXY]
        assert (proxy_inputs(before) == proxy_inputs(after)) is same


def test_encoders_come_or_go() -> None:
    assert proxy_inputs(without()) != proxy_inputs(without("encode"))
    assert differences(without(), without("encode")) == Effect.TOPOLOGY.value.always


def test_the_cache_comes_or_goes() -> None:
    aggregated, plain = without("encode"), without("encode", "encoderCache")

    assert differences(aggregated, plain) == Effect.PAIRING.value.always - {Key.ENCODE}


def test_no_entry_without_a_field() -> None:
    paths = {".".join(path.split(".")[:depth]) for path in FIELDS for depth in range(1, 9)}

    assert set(EFFECTS) - paths == set()
