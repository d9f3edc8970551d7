"""For every field and for flags: which of the two keys changes, and whose pods roll."""

from __future__ import annotations

from typing import Any

import pytest

from epd.api import names
from epd.api.names import Role
from epd.api.types import EPDDeployment
from epd.manifests import Context, collector, desired
from epd.topology.model_version import model_version
from epd.topology.pairing import pairing
from unit.topology.objects import ABSENT, epd

VERSION, PAIRING = "version", "pairing"
E, PD, PROXY, COLLECTOR = "encode", "prefill-decode", "proxy", "collector"
CONTEXT = Context(operator_image="epd-operator:test")

NOTHING: set[str] = set()
ENGINES = {E, PD}
NEW_PAIR = {PAIRING, E, PD}
NEW_CACHE = {VERSION, PAIRING, E, PD}
TEMPLATE = "encoderCache.volume.volumeClaimTemplate"
NODE = {"spec": {"nodeSelector": {"a": "b"}}}

FIELDS: list[tuple[str, Any, set[str]]] = [
    ("model.name", "Qwen/Other", NEW_CACHE),
    ("model.revision", "0", NEW_CACHE),
    ("model.servedNames", ["a"], ENGINES),
    ("model.dtype", "float16", NEW_CACHE),
    ("model.quantization", "awq", NEW_CACHE),
    ("model.maxModelLen", 4096, ENGINES),
    ("model.processorKwargs", {"max_pixels": 1}, NEW_CACHE),
    ("model.mediaIOKwargs", {"video": {"num_frames": 1}}, NEW_CACHE),
    ("model.mediaLimits", {"image": 1}, ENGINES),
    ("model.source", {"huggingFace": {"tokenSecretRef": {"name": "a", "key": "b"}}}, ENGINES),
    ("model.source", {"huggingFace": {"cacheClaim": {"claimName": "a"}}}, ENGINES),
    ("model.source", {"huggingFace": {"offline": True}}, NEW_PAIR),
    ("model.source", {"persistentVolumeClaim": {"claimName": "a"}}, NEW_CACHE),
    ("engine.image", "vllm/vllm-openai:v0.33.1", NEW_PAIR),
    ("engine.image", "vllm/vllm-openai:v0.32.0", NEW_CACHE),
    ("engine.image", "vllm/vllm-openai:latest", NEW_CACHE),
    ("engine.imagePullPolicy", "Always", ENGINES),
    ("engine.version", "0.33.1", NOTHING),
    ("engine.version", "0.32.0", NEW_CACHE),
    ("engine.device", "CUDA", NOTHING),
    ("engine.device", "CPU", ENGINES),
    ("engine.args", ["--max-num-seqs", "8"], ENGINES),
    ("engine.env", [{"name": "TZ", "value": "UTC"}], ENGINES),
    ("engine.env", [{"name": "OTHER", "value": "1"}], NEW_CACHE),
    ("engine.podTemplate", NODE, ENGINES),
    ("engine.tls", {"secretName": "a"}, ENGINES | {PROXY}),
    ("imagePullSecrets", [{"name": "a"}], {E, PD, PROXY, COLLECTOR}),
    ("encode.replicas", 3, NOTHING),
    ("encode.scaling", {"mode": "External"}, NOTHING),
    ("encode.rollingUpdate", {"maxSurge": 1}, NOTHING),
    ("encode.parallelism", {"tensor": 2}, {E}),
    ("encode.resources", {"limits": {"nvidia.com/gpu": 1, "memory": "1Gi"}}, {E}),
    ("encode.port", 9000, {E}),
    ("encode.args", ["--max-num-seqs", "8"], {E}),
    ("encode.args", ["--other"], NEW_CACHE),
    ("encode.env", [{"name": "TZ", "value": "UTC"}], {E}),
    ("encode.startupTimeout", "1h", {E}),
    ("encode.drainTimeout", "5m", {E}),
    ("encode.podTemplate", NODE, {E}),
    ("prefillDecode.args", ["--max-num-seqs", "8"], {PD}),
    ("prefillDecode.args", ["--max-num-batched-tokens", "200000"], {E, PD}),
    ("prefillDecode.port", 9000, {PD}),
    ("prefillDecode.podTemplate", NODE, {PD}),
    ("encoderCache.connector", "Example", NEW_PAIR | {PROXY}),
    ("encoderCache.extraConfig", {"local_bytes": 1}, NEW_PAIR),
    ("encoderCache.hashAlgorithm", "SHA256", NEW_CACHE | {PROXY}),
    ("encoderCache.salt", "2", NEW_CACHE),
    ("encoderCache.reclaimPolicy", "Retain", NOTHING),
    ("encoderCache.garbageCollection.enabled", False, NOTHING),
    ("encoderCache.garbageCollection.versionGracePeriod", "2h", NOTHING),
    ("encoderCache.garbageCollection.entryTTL", "72h", NOTHING),
    ("encoderCache.garbageCollection.minIdle", "1h", ENGINES | {PROXY}),
    ("encoderCache.garbageCollection.highWatermarkPercent", 90, NOTHING),
    ("encoderCache.garbageCollection.lowWatermarkPercent", 10, NOTHING),
    ("encoderCache.garbageCollection.maxSize", "80Gi", NOTHING),
    ("encoderCache.garbageCollection.dryRun", True, NOTHING),
    ("encoderCache.garbageCollection.evictLiveEntries", True, NOTHING),
    ("encoderCache.garbageCollection.resources", {"limits": {"memory": "1Gi"}}, {COLLECTOR}),
    ("encoderCache.garbageCollection.podTemplate", NODE, {COLLECTOR}),
    ("encoderCache.volume", {"persistentVolumeClaim": {"claimName": "a"}}, NEW_PAIR | {COLLECTOR}),
    (f"{TEMPLATE}.metadata", {"labels": {"a": "b"}}, NOTHING),
    (f"{TEMPLATE}.spec.resources", {"requests": {"storage": "200Gi"}}, NOTHING),
    (f"{TEMPLATE}.spec.accessModes", ["ReadWriteOnce"], ENGINES | {COLLECTOR}),
    ("proxy.replicas", 3, NOTHING),
    ("proxy.scaling", {"mode": "External"}, NOTHING),
    ("proxy.encoderFailurePolicy", "Fail", {PROXY}),
    ("proxy.affinity", "Session", {PROXY}),
    ("proxy.timeouts.request", "20m", {PD, PROXY}),
    ("proxy.timeouts.encode", "5m", {PROXY}),
    ("proxy.timeouts.idle", "5m", {PROXY}),
    ("proxy.timeouts.queue", "5m", {PROXY}),
    ("proxy.limits.maxInFlight", 1, {PROXY}),
    ("proxy.limits.maxConnections", 1, {PROXY}),
    ("proxy.limits.maxFallbackEncodes", 1, {PROXY}),
    ("proxy.limits.maxPerEngine", 1, {PROXY}),
    ("proxy.limits.maxQueued", 1, {PROXY}),
    ("proxy.limits.maxPerTenant", 1, {PROXY}),
    ("proxy.tls", {"secretName": "a"}, {PROXY}),
    ("proxy.auth.apiKeys", {"secretName": "a"}, {PROXY}),
    ("proxy.auth.tenantIsolation", "Salted", {PROXY}),
    ("proxy.auth.requestPriority", "Ignore", {PROXY}),
    ("proxy.accessLog.policy", "All", {PROXY}),
    ("proxy.accessLog.samplePercent", 5, {PROXY}),
    ("proxy.cors.allowedOrigins", ["https://a.example"], {PROXY}),
    ("proxy.service", {"type": "LoadBalancer", "port": 8080, "annotations": {"a": "b"}}, NOTHING),
    ("proxy.media.allowedDomains", ["a.example"], {E, PD, PROXY}),
    ("proxy.media.maxBodySize", "1Gi", {PROXY}),
    ("proxy.resources", {"limits": {"memory": "2Gi"}}, {PROXY}),
    ("proxy.podTemplate", NODE, {PROXY}),
    ("securityContext", {"runAsNonRoot": True}, {E, PD, PROXY, COLLECTOR}),
    ("securityContext", {"runAsUser": 2000}, ENGINES | {COLLECTOR}),
    ("paused", True, NOTHING),
    ("suspend", True, {PROXY}),
    ("restartedAt", "2026-01-01", ENGINES),
]

FLAGS: list[tuple[list[str], bool]] = [
    (["--max-num-seqs", "8"], False),
    (["--max_num_seqs=8"], False),
    (["--max-num-batched-tokens", "200000"], False),
    (["--gpu-memory-utilization", "0.5"], False),
    (["--kv-cache-dtype", "fp8"], False),
    (["--block-size", "32"], False),
    (["--no-enable-prefix-caching"], False),
    (["--enable-chunked-prefill"], False),
    (["--cpu-offload-gb", "4"], False),
    (["--speculative-config", '{"method":"ngram"}'], False),
    (["--speculative-config.method", "ngram"], False),
    (["--enable-expert-parallel"], False),
    (["--enable-lora", "--lora-modules", "a=/a"], False),
    (["--chat-template", "/t"], False),
    (["--tool-call-parser", "hermes"], False),
    (["--reasoning-parser", "qwen3"], False),
    (["--enable-log-requests"], False),
    (["--otlp-traces-endpoint", "http://a"], False),
    (["--uvicorn-log-level", "debug"], False),
    (["--skip-mm-profiling"], False),
    (["--safetensors-load-strategy", "eager"], False),
    (["--mm-processor-cache-gb", "8"], False),
    (["--enforce-eager"], True),
    (["--compilation-config", '{"mode":3}'], True),
    (["-cc.mode=3"], True),
    (["--attention-backend", "FLASHINFER"], True),
    (["--mm-encoder-attn-backend", "FLASH_ATTN"], True),
    (["--mm-encoder-tp-mode", "data"], True),
    (["--mm-tensor-ipc", "torch_shm"], True),
    (["--mm-processor-device", "cuda"], True),
    (["--video-pruning-rate", "0.5"], True),
    (["--hf-overrides", '{"a":1}'], True),
    (["--load-format", "dummy"], True),
    (["--tokenizer", "other"], True),
    (["--trust-remote-code"], True),
    (["--quantization-config", "{}"], True),
    (["--enable-tower-connector-lora"], True),
    (["--worker-extension-cls", "a.B"], True),
    (["--flag-of-tomorrow"], True),
    (["--max-num-s", "8"], True),
]


def effects(before: EPDDeployment, after: EPDDeployment) -> set[str]:
    """Keys that differ, and components whose pod template differs."""

    def templates(given: EPDDeployment) -> dict[str, Any]:
        return {
            child["metadata"]["labels"][names.LABEL_COMPONENT]: child["spec"]["template"]
            for child in (*desired(given, CONTEXT), *collector([given], CONTEXT))
            if child["kind"] == "Deployment"
        }

    one, other = templates(before), templates(after)
    changed = {component for component in one if one[component] != other[component]}
    if model_version(before.spec) != model_version(after.spec):
        changed.add(VERSION)
    return changed | {PAIRING} if pairing(before) != pairing(after) else changed


@pytest.mark.parametrize(("path", "value", "expected"), FIELDS)
def test_fields(path: str, value: Any, expected: set[str]) -> None:
    before = epd({"encode.replicas": ABSENT} if path == "encode.scaling" else {})
    after = epd({"encode.replicas": ABSENT, path: value} if path == "encode.scaling" else {path: value})
    assert effects(before, after) == expected


@pytest.mark.parametrize(("args", "new_cache"), FLAGS)
def test_flags(args: list[str], new_cache: bool) -> None:
    assert effects(epd(), epd({"engine.args": args})) == (NEW_CACHE if new_cache else ENGINES)


WHOLE = (".env", "imagePullSecrets")
"""Lists of objects, each one value here."""


def paths(model: Any, prefix: str = "") -> set[str]:
    found: set[str] = set()
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        parts = (field.annotation, *getattr(field.annotation, "__args__", ()))
        inner = [part for part in parts if hasattr(part, "model_fields") and not path.endswith(WHOLE)]
        found |= set().union(*(paths(part, f"{path}.") for part in inner)) if inner else {path}
    return found


def test_no_field_is_missing_from_the_table() -> None:
    """A role's fields are the same for both roles; a union counts with its members."""
    given = tuple(f"{path}." for path, _, _ in FIELDS)
    of_spec = {f"{path}." for path in paths(EPDDeployment.model_fields["spec"].annotation)}
    missing = {path[:-1] for path in of_spec if not path.startswith(("prefillDecode.", *given))}
    assert missing == {"encoderCache.custom.class", "encoderCache.custom.module"}


def test_another_connector_is_another_pair() -> None:
    custom = {"encoderCache.connector": "Custom", "encoderCache.custom": {"module": "a", "class": "B"}}
    assert effects(epd(), epd(custom)) == NEW_PAIR | {PROXY}
    other = custom | {"encoderCache.custom": {"module": "a", "class": "C"}}
    assert effects(epd(custom), epd(other)) == NEW_PAIR


def test_an_encoder_added_later_keeps_the_cache() -> None:
    before, after = epd({"encode": ABSENT}), epd()
    assert effects(before, after) == {PD, PROXY}
    assert len(desired(after, CONTEXT)) == len(desired(before, CONTEXT)) + 1


def test_another_operator_image_rolls_the_proxy_only() -> None:
    one, other = (desired(epd(), Context(operator_image=image)) for image in ("a", "b"))
    changed = [child["metadata"]["name"] for child, before in zip(other, one, strict=True) if child != before]
    assert changed == [names.proxy("qwen-vl")]


@pytest.mark.parametrize("role", [Role.ENCODE, Role.PREFILL_DECODE])
def test_versions_stand_on_the_pods(role: Role) -> None:
    given = epd()
    child = next(
        child
        for child in desired(given, CONTEXT)
        if child["metadata"]["name"] == names.role_deployment("qwen-vl", role)
    )
    labels = child["spec"]["template"]["metadata"]["labels"]
    assert labels[names.LABEL_MODEL_VERSION] == model_version(given.spec)
    assert labels[names.LABEL_PAIRING] == pairing(given)
    assert not {names.LABEL_MODEL_VERSION, names.LABEL_PAIRING} & set(child["spec"]["selector"]["matchLabels"])
