"""Engines and roles that the API server must refuse, and the words with which it does."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.api.objects import ABSENT
from apiserver.api.refusing import refused
from apiserver.server import Namespace

pytestmark = pytest.mark.apiserver

OWNED_EC = "--ec-transfer-config is set by the operator from spec.encoderCache; use spec.encoderCache.extraConfig"
NO_CONTENT_KEYS = "spec.engine.args: --mm-processor-cache-gb 0 is refused with spec.encode"

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    # engine
    "no engine": ({"spec.engine": ABSENT}, "spec.engine: Required value"),
    "certificate of engines from nowhere": (
        {"spec.engine.tls": {"serverName": "a"}},
        "spec.engine.tls.secretName: Required value",
    ),
    "address in place of a name": (
        {"spec.engine.tls": {"secretName": "a", "serverName": "https://a"}},
        "spec.engine.tls.serverName in body should match",
    ),
    "certificate as a flag": (
        {"spec.engine.args": ["--ssl-certfile=/a"]},
        "--ssl-certfile is set by the operator; use spec.engine.tls",
    ),
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
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(default: Namespace, changes: dict[str, Any], message: str) -> None:
    assert message in refused(default, changes)
