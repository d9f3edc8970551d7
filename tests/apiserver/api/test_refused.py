"""Objects that the API server must refuse, and the words with which it does."""

from __future__ import annotations

import re
from typing import Any

import pytest

from apiserver.api.objects import ABSENT, TEMPLATE, changed
from apiserver.server import ApiServer, Namespace

pytestmark = pytest.mark.apiserver

VOLUME = "spec.encoderCache.volume"
COLLECTION = "spec.encoderCache.garbageCollection"
CLAIM = f"{VOLUME}.volumeClaimTemplate.spec"
OWNED_EC = "--ec-transfer-config is set by the operator from spec.encoderCache; use spec.encoderCache.extraConfig"
NO_CONTENT_KEYS = "spec.engine.args: --mm-processor-cache-gb 0 is refused with spec.encode"

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    # names
    "name too long": ({"metadata.name": "a" * 46}, "metadata.name: at most 45 characters"),
    "name begins with a digit": ({"metadata.name": "7b"}, "beginning with a letter"),
    "name with a dot": ({"metadata.name": "qwen.vl"}, "metadata.name: at most 45 characters, lower-case letters"),
    # topology
    "no prefill side": (
        {"spec.prefillDecode": ABSENT},
        "spec: set prefillDecode. prefillDecode alone is aggregated; with encode it is E|PD",
    ),
    "prefill is not built yet": ({"spec.prefill": {}}, 'unknown field "spec.prefill"'),
    "decode is not built yet": ({"spec.decode": {}}, 'unknown field "spec.decode"'),
    "encode without a cache": ({"spec.encoderCache": ABSENT}, "spec.encoderCache is required with spec.encode"),
    "nothing that generates": (
        {"spec.prefillDecode.replicas": 0},
        "spec.prefillDecode.replicas must be at least 1; to stop every engine, set spec.suspend: true",
    ),
    # model
    "no model": ({"spec.model": ABSENT}, "spec.model: Required value"),
    "no model name": ({"spec.model.name": ABSENT}, "spec.model.name: Required value"),
    "model name is a flag": ({"spec.model.name": "--help"}, "spec.model.name in body should match"),
    "unquoted revision": (
        {"spec.model.revision": 66285546e2},
        "spec.model.revision in body must be of type string",
    ),
    "served name twice": ({"spec.model.servedNames": ["a", "a"]}, 'spec.model.servedNames[1]: Duplicate value: "a"'),
    "served name with a space": ({"spec.model.servedNames": ["my model"]}, "spec.model.servedNames[0] in body should"),
    "unknown dtype": ({"spec.model.dtype": "fp8"}, 'Unsupported value: "fp8": supported values: "auto", "bfloat16"'),
    "no room for a token": ({"spec.model.maxModelLen": 0}, "spec.model.maxModelLen in body should be greater than"),
    "unknown kind of media": (
        {"spec.model.mediaLimits": {"images": 4}},
        'unknown field "spec.model.mediaLimits.images"',
    ),
    "two sources": (
        {"spec.model.source": {"huggingFace": {}, "persistentVolumeClaim": {"claimName": "w"}}},
        "spec.model.source: set exactly one of huggingFace and persistentVolumeClaim",
    ),
    "empty source": (
        {"spec.model.source": {}},
        "spec.model.source: set exactly one of huggingFace and persistentVolumeClaim",
    ),
    "offline without a cache": (
        {"spec.model.source": {"huggingFace": {"offline": True}}},
        "spec.model.source.huggingFace.offline needs cacheClaim",
    ),
    "absolute sub-path": (
        {"spec.model.source": {"persistentVolumeClaim": {"claimName": "w", "subPath": "/qwen"}}},
        "spec.model.source.persistentVolumeClaim.subPath: must be a relative path without '..'",
    ),
    "sub-path that climbs": (
        {VOLUME: {"persistentVolumeClaim": {"claimName": "ec", "subPath": "a/../../b"}}},
        "must be a relative path without '..'",
    ),
    # engine
    "no engine": ({"spec.engine": ABSENT}, "spec.engine: Required value"),
    "image with a space": ({"spec.engine.image": "vllm openai"}, "spec.engine.image in body should match"),
    "version as in a tag": ({"spec.engine.version": "v0.33.0"}, "spec.engine.version in body should match"),
    "unknown device": ({"spec.engine.device": "GPU"}, 'supported values: "Auto", "CUDA", "ROCm", "CPU"'),
    "owned flag": (
        {"spec.engine.args": ["--seed", "1", "--ec-transfer-config", "{}"]},
        f"spec.engine.args[2]: {OWNED_EC}",
    ),
    "owned flag with a value": ({"spec.engine.args": ["--ec-transfer-config={}"]}, OWNED_EC),
    "owned flag with underscores": ({"spec.engine.args": ["--ec_transfer_config", "{}"]}, OWNED_EC),
    "owned flag with a JSON key": ({"spec.engine.args": ["--ec-transfer-config.ec_role", "ec_both"]}, OWNED_EC),
    "owned flag with a JSON list": (
        {"spec.engine.args": ["--media-io-kwargs.x+", "1"]},
        "use spec.model.mediaIOKwargs",
    ),
    "short owned flag": ({"spec.engine.args": ["-tp", "2"]}, "-tp is set by the operator; use parallelism.tensor"),
    "shorter owned flag": ({"spec.engine.args": ["-q=awq"]}, "-q is set by the operator; use spec.model.quantization"),
    "negated owned flag": ({"spec.engine.args": ["--no-mm-encoder-only"]}, "spec.encode makes encoders"),
    "flags from a file": ({"spec.engine.args": ["--config", "/etc/vllm.yaml"]}, "a file could carry any flag, unseen"),
    "data parallelism": ({"spec.engine.args": ["--data-parallel-size", "2"]}, "one pod is one engine; use replicas"),
    "pipeline parallelism": ({"spec.engine.args": ["-pp", "2"]}, "pipeline parallelism is not supported yet"),
    "transfer between P and D": ({"spec.engine.args": ["--kv-transfer-config", "{}"]}, "between prefill and decode"),
    "key of the engine": ({"spec.engine.args": ["--api-key", "x"]}, "clients use the proxy"),
    "files of the engine": ({"spec.engine.args": ["--allowed-local-media-path", "/"]}, "clients could read files"),
    "options of requests": (
        {"spec.engine.args": ["--trust-request-mm-kwargs"]},
        "change embeddings that other requests",
    ),
    "owned flag at a role": (
        {"spec.encode.args": ["--port", "9000"]},
        "spec.encode.args[0]: --port is set by the operator; use port of the role",
    ),
    "quantization of one role": ({"spec.prefillDecode.args": ["--quantization", "awq"]}, "spec.prefillDecode.args[0]"),
    "tokenizer of one role": (
        {"spec.encode.args": ["--tokenizer=x"]},
        "--tokenizer changes cache keys or embeddings: all roles must agree on it; use spec.engine.args",
    ),
    "processor cache of one role": (
        {"spec.encode.args": ["--mm_processor_cache_gb=1"]},
        "--mm-processor-cache-gb changes cache keys",
    ),
    "no processor cache": ({"spec.engine.args": ["--seed", "0", "--mm-processor-cache-gb", "0"]}, NO_CONTENT_KEYS),
    "no processor cache, one word": ({"spec.engine.args": ["--mm-processor-cache-gb=0"]}, NO_CONTENT_KEYS),
    "too many flags": ({"spec.engine.args": ["--x"] * 257}, "spec.engine.args: Too many: 257: must have at most 256"),
    "too long a flag": ({"spec.engine.args": ["x" * 4097]}, "spec.engine.args[0]: Too long"),
    "token in the clear": (
        {"spec.engine.env": [{"name": "HF_TOKEN", "value": "x"}]},
        "spec.engine.env[0]: HF_TOKEN is set by the operator; use spec.model.source.huggingFace.tokenSecretRef",
    ),
    "uid of the pod": (
        {"spec.engine.env": [{"name": "EPD_POD_UID", "value": "x"}]},
        "EPD_POD_UID is set by the operator",
    ),
    "home of one role": ({"spec.encode.env": [{"name": "HOME", "value": "/x"}]}, "spec.encode.env[0]: HOME is set"),
    "variable twice": (
        {"spec.engine.env": [{"name": "A"}, {"name": "A"}]},
        'spec.engine.env[1]: Duplicate value: {"name":"A"}',
    ),
    "variable with two sources": (
        {"spec.engine.env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]},
        "set value or valueFrom, not both",
    ),
    "variable from nowhere": (
        {"spec.engine.env": [{"name": "A", "valueFrom": {}}]},
        "set exactly one of secretKeyRef, configMapKeyRef, fieldRef and resourceFieldRef",
    ),
    "pull secret twice": (
        {"spec.imagePullSecrets": [{"name": "a"}, {"name": "a"}]},
        "spec.imagePullSecrets[1]: Duplicate",
    ),
    # roles
    "typo in a role": ({"spec.encode.replica": 2}, 'unknown field "spec.encode.replica"'),
    "replicas as text": ({"spec.encode.replicas": "2"}, "spec.encode.replicas in body must be of type integer"),
    "negative replicas": (
        {"spec.encode.replicas": -1},
        "spec.encode.replicas in body should be greater than or equal to 0",
    ),
    "replicas beside a scaler": (
        {"spec.encode.scaling.mode": "External"},
        "spec.encode.replicas must be absent when scaling.mode is External (in a Kustomize patch: replicas: null)",
    ),
    "prefill side beside a scaler": (
        {"spec.prefillDecode.scaling.mode": "External"},
        "spec.prefillDecode.replicas must be absent when scaling.mode is External",
    ),
    "more devices than GPUs": (
        {"spec.prefillDecode.parallelism.tensor": 8},
        'spec.prefillDecode: parallelism.tensor is 8 but resources.limits["nvidia.com/gpu"] is 1; they must be equal',
    ),
    "more GPUs than devices": (
        {"spec.encode.resources.limits": {"amd.com/gpu": "2"}},
        'spec.encode: parallelism.tensor is 1 but resources.limits["amd.com/gpu"] is 2; they must be equal',
    ),
    "no device at all": ({"spec.encode.parallelism.tensor": 0}, "spec.encode.parallelism.tensor in body should be"),
    "malformed quantity": ({"spec.encode.resources.limits": {"memory": "64GB"}}, "limits.memory in body should match"),
    "port zero": ({"spec.encode.port": 0}, "spec.encode.port in body should be greater than or equal to 1"),
    "rollout that cannot move": (
        {"spec.encode.rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}},
        "spec.encode.rollingUpdate: maxSurge and maxUnavailable cannot both be 0",
    ),
    "negative surge": ({"spec.encode.rollingUpdate": {"maxSurge": -1}}, "must be a number of pods, 0 or more"),
    "malformed percentage": ({"spec.encode.rollingUpdate": {"maxSurge": "a lot"}}, "maxSurge: Too long"),
    "percentage without its sign": ({"spec.encode.rollingUpdate": {"maxSurge": "25"}}, "maxSurge in body should match"),
    "empty duration": ({"spec.encode.drainTimeout": ""}, "spec.encode.drainTimeout in body should be at least 2 chars"),
    "duration in words": ({"spec.encode.drainTimeout": "10 minutes"}, "spec.encode.drainTimeout in body should match"),
    "too short a start": (
        {"spec.encode.startupTimeout": "1s"},
        "spec.encode.startupTimeout must be between 10s and 24h",
    ),
    "too long a drain": ({"spec.encode.drainTimeout": "25h"}, "spec.encode.drainTimeout must be between 0s and 24h"),
    "podTemplate without spec": (
        {"spec.encode.podTemplate": {"nodeSelector": {}}},
        'unknown field "spec.encode.podTemplate.nodeSelector"',
    ),
    # encoder cache
    "connector not built yet": (
        {"spec.encoderCache.connector": "Mooncake"},
        'supported values: "Managed", "Example", "Custom"',
    ),
    "class without Custom": (
        {"spec.encoderCache.custom": {"class": "C", "module": "m"}},
        "spec.encoderCache.custom must be set with connector: Custom, and with it alone",
    ),
    "Custom without a class": (
        {"spec.encoderCache.connector": "Custom"},
        "spec.encoderCache.custom must be set with connector: Custom, and with it alone",
    ),
    "no volume": (
        {VOLUME: ABSENT},
        "spec.encoderCache.volume is required with connector: Managed and Example; set volumeClaimTemplate or",
    ),
    "no volume for the connector that is default": (
        {VOLUME: ABSENT, "spec.encoderCache.connector": ABSENT},
        "spec.encoderCache.volume is required with connector: Managed and Example; set volumeClaimTemplate or",
    ),
    "directory in two spellings": (
        {VOLUME: {"persistentVolumeClaim": {"claimName": "ec", "subPath": "a//b/."}}},
        "must have no '.' and no empty part, such as qwen/ec",
    ),
    "watermarks upside down": (
        {f"{COLLECTION}.lowWatermarkPercent": 85},
        "lowWatermarkPercent must be less than highWatermarkPercent",
    ),
    "watermark of all": ({f"{COLLECTION}.highWatermarkPercent": 100}, "should be less than or equal to 99"),
    "age below idleness": ({f"{COLLECTION}.entryTTL": "29m"}, "entryTTL must be at least minIdle"),
    "use noted all the time": ({f"{COLLECTION}.minIdle": "1s"}, "minIdle must be between 10s and 8760h"),
    "no grace": ({f"{COLLECTION}.versionGracePeriod": "0s"}, "versionGracePeriod must be between 10s and 8760h"),
    "no size of its own": ({f"{COLLECTION}.maxSize": 0}, "must be more than 0, for example 80Gi"),
    "eviction without a choice": (
        {"spec.encoderCache.connector": "Managed", f"{COLLECTION}.evictLiveEntries": True},
        "evictLiveEntries is a choice of connector: Example alone",
    ),
    "two volumes": (
        {VOLUME: {"volumeClaimTemplate": TEMPLATE, "persistentVolumeClaim": {"claimName": "ec"}}},
        "spec.encoderCache.volume: set exactly one of volumeClaimTemplate and persistentVolumeClaim",
    ),
    "empty volume": (
        {VOLUME: {}},
        "spec.encoderCache.volume: set exactly one of volumeClaimTemplate and persistentVolumeClaim",
    ),
    "claim of another namespace": (
        {VOLUME: {"persistentVolumeClaim": {"claimName": "ec", "namespace": "ai"}}},
        'unknown field "spec.encoderCache.volume.persistentVolumeClaim.namespace"',
    ),
    "deleting on a claim you brought what a class of your own wrote": (
        {
            "spec.encoderCache": {
                "connector": "Custom",
                "custom": {"class": "C", "module": "m"},
                "reclaimPolicy": "Delete",
                "volume": {"persistentVolumeClaim": {"claimName": "ec"}},
            }
        },
        "spec.encoderCache.reclaimPolicy: Delete is refused with connector: Custom and volume.persistentVolumeClaim",
    ),
    "deleting on a claim you brought without a collector": (
        {
            VOLUME: {"persistentVolumeClaim": {"claimName": "ec"}},
            "spec.encoderCache.reclaimPolicy": "Delete",
            f"{COLLECTION}.enabled": False,
        },
        "spec.encoderCache.reclaimPolicy: Delete with volume.persistentVolumeClaim needs garbageCollection.enabled",
    ),
    "read-only cache": ({f"{CLAIM}.accessModes": ["ReadOnlyMany"]}, "ReadOnlyMany cannot hold a cache"),
    "cache for one pod": (
        {f"{CLAIM}.accessModes": ["ReadWriteOncePod"]},
        "ReadWriteOncePod lets one pod use the cache",
    ),
    "unknown access mode": ({f"{CLAIM}.accessModes": ["RWX"]}, 'Unsupported value: "RWX"'),
    "block device": ({f"{CLAIM}.volumeMode": "Block"}, 'Unsupported value: "Block": supported values: "Filesystem"'),
    "no size": ({f"{CLAIM}.resources": {"requests": {}}}, "resources.requests.storage: Required value"),
    "size zero": ({f"{CLAIM}.resources.requests.storage": 0}, "must be more than 0, for example 100Gi"),
    "size in words": (
        {f"{CLAIM}.resources.requests.storage": "100 GB"},
        "resources.requests.storage in body should match",
    ),
    "size at the wrong place": ({f"{CLAIM}.storage": "1Gi"}, 'volumeClaimTemplate.spec.storage"'),
    # proxy and pods
    "endless request": (
        {"spec.proxy.timeouts.request": "48h"},
        "spec.proxy.timeouts.request must be between 1s and 24h",
    ),
    "endless encode": ({"spec.proxy.timeouts.encode": "2h"}, "spec.proxy.timeouts.encode must be between 1s and 1h"),
    "endless queue": ({"spec.proxy.timeouts.queue": "2h"}, "spec.proxy.timeouts.queue must be between 1s and 1h"),
    "no connection": ({"spec.proxy.limits.maxConnections": 0}, "spec.proxy.limits.maxConnections in body should be"),
    "bodies beyond the default memory": (
        {"spec.proxy.media.maxBodySize": "257Mi"},
        "spec.proxy.media.maxBodySize must be at most a quarter of spec.proxy.resources.limits.memory (1Gi by default)",
    ),
    "bodies beyond the memory": (
        {"spec.proxy.media.maxBodySize": "1Gi", "spec.proxy.resources.limits": {"memory": "3Gi"}},
        "spec.proxy.media.maxBodySize must be at most a quarter of spec.proxy.resources.limits.memory",
    ),
    "default bodies beyond the memory": (
        {"spec.proxy.resources.limits": {"memory": "128Mi"}},
        "spec.proxy.media.maxBodySize must be at most a quarter of spec.proxy.resources.limits.memory",
    ),
    "body too large": (
        {"spec.proxy.media.maxBodySize": "2Gi"},
        "spec.proxy.media.maxBodySize must be between 1Ki and 1Gi",
    ),
    "malformed body size": (
        {"spec.proxy.media.maxBodySize": "64MB"},
        "spec.proxy.media.maxBodySize in body should match",
    ),
    "domain with a scheme": (
        {"spec.proxy.media.allowedDomains": ["https://a.b"]},
        "allowedDomains[0] in body should match",
    ),
    "a share of the whole log": (
        {"spec.proxy.accessLog": {"policy": "All", "samplePercent": 5}},
        "spec.proxy.accessLog.samplePercent goes with policy: Errors alone",
    ),
    "no share of the log": (
        {"spec.proxy.accessLog.samplePercent": 0},
        "spec.proxy.accessLog.samplePercent in body should be greater than",
    ),
    "unknown affinity": ({"spec.proxy.affinity": "Cookie"}, 'supported values: "None", "Session", "Prefix"'),
    "isolation without tenants": (
        {"spec.proxy.auth": {"tenantIsolation": "Salted"}},
        "spec.proxy.auth.tenantIsolation: Salted needs spec.proxy.auth.apiKeys: without keys there are no tenants to "
        "tell apart. Set apiKeys: {secretName: ...}, or use Shared",
    ),
    "share of a tenant without tenants": (
        {"spec.proxy.limits.maxPerTenant": 3},
        "spec.proxy.limits.maxPerTenant needs spec.proxy.auth.apiKeys",
    ),
    "unknown isolation": ({"spec.proxy.auth.tenantIsolation": "Strict"}, 'supported values: "Shared", "Salted"'),
    "keys from nowhere": ({"spec.proxy.auth.apiKeys": {}}, "spec.proxy.auth.apiKeys.secretName: Required value"),
    "certificate from nowhere": ({"spec.proxy.tls": {}}, "spec.proxy.tls.secretName: Required value"),
    "name of no Secret": ({"spec.proxy.tls.secretName": "Web_TLS"}, "spec.proxy.tls.secretName in body should match"),
    "page in place of an origin": (
        {"spec.proxy.cors.allowedOrigins": ["https://a.example.com/chat"]},
        "spec.proxy.cors.allowedOrigins[0] in body should match",
    ),
    "origin twice": (
        {"spec.proxy.cors.allowedOrigins": ["*", "*"]},
        'spec.proxy.cors.allowedOrigins[1]: Duplicate value: "*"',
    ),
    "no room at an engine": ({"spec.proxy.limits.maxPerEngine": 0}, "spec.proxy.limits.maxPerEngine in body should be"),
    "unknown policy": ({"spec.proxy.encoderFailurePolicy": "Ignore"}, 'supported values: "Fallback", "Fail"'),
    "service without a proxy": ({"spec.proxy.service.type": "ExternalName"}, 'Unsupported value: "ExternalName"'),
    "container's security in the pod's": (
        {"spec.securityContext.privileged": True},
        'unknown field "spec.securityContext.privileged"',
    ),
    "negative uid": ({"spec.securityContext": {"runAsUser": -1}}, "spec.securityContext.runAsUser in body should be"),
}


@pytest.fixture(scope="module")
def default(api_server: ApiServer) -> Namespace:
    """The namespace that is always there: nothing of this module is kept."""
    return Namespace(server=api_server, name="default")


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(default: Namespace, changes: dict[str, Any], message: str) -> None:
    answer = default.create(changed(changes), dry_run=True)

    assert answer.status_code in (400, 422), answer.text
    assert message in _without_values(answer.json()["message"])


def _without_values(message: str) -> str:
    """The API server puts `Invalid value: <the value>: ` between path and message; the table leaves it out."""
    return re.sub(r'Invalid value: ("(?:[^"\\]|\\.)*": )?', "", message)
