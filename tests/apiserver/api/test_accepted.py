"""Objects that the API server must accept."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.api.objects import ABSENT, E_PD, changed
from apiserver.server import ApiServer, Namespace

pytestmark = pytest.mark.apiserver

VOLUME = "spec.encoderCache.volume"
CLAIM = f"{VOLUME}.volumeClaimTemplate.spec"
CUSTOM = {"connector": "Custom", "custom": {"class": "RedisECConnector", "module": "acme.connectors"}}

ACCEPTED: dict[str, dict[str, Any]] = {
    "encoders and prefill side": {},
    "longest name": {"metadata.name": "a" * 45},
    "aggregated, without a cache": {"spec.encode": ABSENT, "spec.encoderCache": ABSENT},
    "aggregated, with a cache": {"spec.encode": ABSENT},
    "custom connector": {"spec.encoderCache": CUSTOM},
    "connector by default": {"spec.encoderCache.connector": ABSENT},
    "module path": {"spec.engine.env": [{"name": "PYTHONPATH", "value": "/opt/acme"}]},
    "deleting on a claim you brought": {
        "spec.encoderCache": {
            "reclaimPolicy": "Delete",
            "volume": {"persistentVolumeClaim": {"claimName": "ec", "subPath": "a/b.c"}},
        }
    },
    "eviction from the example connector's versions": {
        "spec.encoderCache.garbageCollection": {"evictLiveEntries": True}
    },
    "policy": {
        "spec.encoderCache.garbageCollection": {
            "versionGracePeriod": "24h",
            "entryTTL": "30m",
            "minIdle": "30m",
            "highWatermarkPercent": 99,
            "lowWatermarkPercent": 98,
            "maxSize": "80Gi",
            "dryRun": True,
            "resources": {"limits": {"memory": "1Gi"}},
            "podTemplate": {"spec": {"nodeSelector": {"a": "b"}}},
        }
    },
    "nothing said of the policy": {"spec.encoderCache.garbageCollection": {}},
    "custom connector with a volume": {"spec.encoderCache": CUSTOM | E_PD["spec"]["encoderCache"] | CUSTOM},
    "free keys for the connector": {"spec.encoderCache.extraConfig": {"a": {"b": [1, "c", None]}}},
    "claim you brought": {VOLUME: {"persistentVolumeClaim": {"claimName": "ec", "subPath": "a/b..c"}}},
    "claim you brought, retained": {
        VOLUME: {"persistentVolumeClaim": {"claimName": "ec"}},
        "spec.encoderCache.reclaimPolicy": "Retain",
    },
    "claim of the default class": {f"{CLAIM}.storageClassName": ABSENT, f"{CLAIM}.accessModes": ABSENT},
    "one node": {f"{CLAIM}.accessModes": ["ReadWriteOnce"]},
    "a volume made before": {
        f"{CLAIM}.volumeName": "nfs-1",
        f"{CLAIM}.selector": {"matchLabels": {"tier": "fast"}},
        f"{CLAIM}.dataSource": {"kind": "PersistentVolumeClaim", "name": "old"},
    },
    "size as a number": {f"{CLAIM}.resources.requests.storage": 107374182400},
    "a scaler of proxies": {"spec.proxy.scaling": {"mode": "External"}},
    "a scaler": {"spec.encode.replicas": ABSENT, "spec.encode.scaling": {"mode": "External"}},
    "no encoder now": {"spec.encode.replicas": 0},
    "default replicas": {"spec.encode": {}, "spec.prefillDecode": {}},
    "suspended": {"spec.prefillDecode.replicas": 0, "spec.suspend": True},
    "eight GPUs": {
        "spec.prefillDecode.parallelism": {"tensor": 8},
        "spec.prefillDecode.resources": {"limits": {"nvidia.com/gpu": "8", "memory": "1Ti"}},
    },
    "a slice of a GPU": {"spec.encode.resources": {"limits": {"nvidia.com/mig-1g.10gb": 1, "cpu": "500m"}}},
    "CPU": {"spec.encode.resources": {"requests": {"cpu": 2}}, "spec.engine.device": "CPU"},
    "harmless flags": {
        "spec.engine.args": ["--max-num-seqs", "64", "--seed", "-1", "--no-enable-prefix-caching", "-O3"]
    },
    "flags that begin like owned ones": {
        "spec.engine.args": ["--config-format", "hf", "--tokenizer", "x", "--model-impl=vllm", "--load-format", "auto"]
    },
    "a value that looks like a flag's name": {
        "spec.engine.args": ["--chat-template", "port", "--reasoning-parser=model"]
    },
    "flags of one role": {
        "spec.encode.args": ["--mm-encoder-tp-mode", "data"],
        "spec.prefillDecode.args": ["--kv-cache-dtype=fp8"],
    },
    "processor cache": {"spec.engine.args": ["--mm-processor-cache-gb", "8"]},
    "no processor cache without encoders": {
        "spec.encode": ABSENT,
        "spec.engine.args": ["--mm-processor-cache-gb", "0"],
    },
    "environment": {
        "spec.engine.env": [
            {"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ]
    },
    "hub": {
        "spec.model.source": {
            "huggingFace": {
                "tokenSecretRef": {"name": "hf", "key": "token"},
                "cacheClaim": {"claimName": "hf-cache"},
                "offline": True,
            }
        }
    },
    "weights on a claim": {
        "spec.model.source": {"persistentVolumeClaim": {"claimName": "weights", "subPath": "qwen"}},
        "spec.model.name": "our-qwen",
        "spec.model.revision": "2026-11-29",
    },
    "media": {
        "spec.model.mediaLimits": {"image": 8, "video": {"count": 1, "num_frames": 32}, "audio": 0},
        "spec.model.processorKwargs": {"max_pixels": 1003520, "crop": {"size": [1, 2]}},
        "spec.model.mediaIOKwargs": {"video": {"num_frames": 32}},
    },
    "served names": {"spec.model.servedNames": ["qwen-vl", "Qwen/Qwen2.5-VL-3B-Instruct", "gpt-4o:latest"]},
    "podTemplate": {
        "spec.engine.podTemplate": {
            "metadata": {"labels": {"team": "ml"}},
            "spec": {"containers": [{"name": "engine", "volumeMounts": []}], "anything": {"at": ["all"]}},
        }
    },
    "ids of the platform": {"spec.securityContext": {"runAsNonRoot": True}},
    "rollout": {"spec.encode.rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}},
    "rollout of one figure": {"spec.encode.rollingUpdate": {"maxUnavailable": 0}},
    "durations": {
        "spec.encode.startupTimeout": "1h30m",
        "spec.encode.drainTimeout": "0s",
        "spec.proxy.timeouts": {"request": "1h1m1s", "encode": "90s", "idle": "5m", "queue": "1s"},
    },
    "proxy": {
        "spec.proxy.media": {"allowedDomains": ["*", "*.example.com", "img.example.com"], "maxBodySize": 1048576},
        "spec.proxy.service": {"type": "LoadBalancer", "port": 8080, "annotations": {"a.b/c": "d"}},
        "spec.proxy.encoderFailurePolicy": "Fail",
        "spec.proxy.affinity": "Prefix",
        "spec.proxy.replicas": 0,
    },
    "bodies of a quarter of the memory": {
        "spec.proxy.media.maxBodySize": "1Gi",
        "spec.proxy.resources": {"limits": {"memory": "4Gi"}},
    },
    "bodies beside a small proxy": {
        "spec.proxy.media.maxBodySize": 33554432,
        "spec.proxy.resources": {"limits": {"memory": 134217728}},
    },
    "bodies without a limit of memory": {
        "spec.proxy.media.maxBodySize": "1Gi",
        "spec.proxy.resources": {"limits": {"cpu": 1}},
    },
    "certificate of engines": {"spec.engine.tls": {"secretName": "engines", "serverName": "engine.example.com"}},
    "endpoint for tenants": {
        "spec.proxy.tls": {"secretName": "epd-tls"},
        "spec.proxy.auth": {"apiKeys": {"secretName": "tenants.v2"}, "tenantIsolation": "Salted"},
        "spec.proxy.limits": {"maxInFlight": 1, "maxPerEngine": 1, "maxQueued": 0, "maxPerTenant": 1}
        | {"maxConnections": 1},
        "spec.proxy.cors": {"allowedOrigins": ["https://chat.example.com", "http://localhost:3000", "*"]},
    },
    "some of the log": {"spec.proxy.accessLog": {"samplePercent": 100}},
    "no log": {"spec.proxy.accessLog": {"policy": "None"}},
    "keys without isolation": {"spec.proxy.auth": {"apiKeys": {"secretName": "tenants"}}},
    "isolation by default": {"spec.proxy.auth": {"tenantIsolation": "Shared"}},
    "priority without keys": {"spec.proxy.auth": {"requestPriority": "Ignore"}},
}


@pytest.mark.parametrize("changes", ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(api_server: ApiServer, changes: dict[str, Any]) -> None:
    answer = Namespace(server=api_server, name="default").create(changed(changes), dry_run=True)

    assert answer.status_code == 201, answer.text
