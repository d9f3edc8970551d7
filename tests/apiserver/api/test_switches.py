"""Unions and defaults under both kinds of apply: what a user takes out of the manifest must go."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.api.objects import ABSENT, E_PD, TEMPLATE, changed
from apiserver.server import Namespace

pytestmark = pytest.mark.apiserver

VOLUME = "spec.encoderCache.volume"
CLAIM = {"persistentVolumeClaim": {"claimName": "ec"}}
CUSTOM = {"connector": "Custom", "custom": {"class": "C", "module": "m"}}
EXAMPLE = {"volume": {"volumeClaimTemplate": TEMPLATE}}

Changes = dict[str, Any]

SWITCHES: dict[str, tuple[Changes, Changes]] = {
    "volume": ({VOLUME: {"volumeClaimTemplate": TEMPLATE}}, {VOLUME: CLAIM}),
    "default source and a claim": (
        {"spec.model.source": ABSENT},
        {"spec.model.source": {"persistentVolumeClaim": {"claimName": "w"}}},
    ),
    "source": (
        {"spec.model.source": {"huggingFace": {"cacheClaim": {"claimName": "c"}, "offline": True}}},
        {"spec.model.source": {"persistentVolumeClaim": {"claimName": "w", "subPath": "s"}}},
    ),
    "empty hub source": (
        {"spec.model.source": {"huggingFace": {}}},
        {"spec.model.source": {"persistentVolumeClaim": {"claimName": "w"}}},
    ),
    "encoders": ({"spec.encode": {"replicas": 2}}, {"spec.encode": ABSENT}),
    "encoders by default": ({"spec.encode": {}}, {"spec.encode": ABSENT}),
    "encoders and cache": ({}, {"spec.encode": ABSENT, "spec.encoderCache": ABSENT}),
    "connector": ({"spec.encoderCache": EXAMPLE}, {"spec.encoderCache": CUSTOM}),
    "connector by default": ({"spec.encoderCache": {"volume": EXAMPLE["volume"]}}, {"spec.encoderCache": CUSTOM}),
    "policy": (
        {
            "spec.encoderCache": EXAMPLE
            | {"connector": "Example", "garbageCollection": {"entryTTL": "2h", "evictLiveEntries": True}}
        },
        {"spec.encoderCache": {"volume": EXAMPLE["volume"], "garbageCollection": {"lowWatermarkPercent": 10}}},
    ),
    "scaling": (
        {"spec.encode": {"replicas": 2}},
        {"spec.encode": {"scaling": {"mode": "External"}}},
    ),
    "scaling of the proxy": (
        {"spec.proxy": {"replicas": 2}},
        {"spec.proxy": {"scaling": {"mode": "External"}}},
    ),
    "named scaling": (
        {"spec.encode": {"replicas": 2, "scaling": {"mode": "Static"}}},
        {"spec.encode": {"scaling": {"mode": "External"}}},
    ),
    "variable": (
        {"spec.engine.env": [{"name": "A", "value": "x"}]},
        {"spec.engine.env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]},
    ),
    "source of a variable": (
        {"spec.engine.env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
        {"spec.engine.env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]},
    ),
    "security context": (
        {"spec.securityContext": ABSENT},
        {"spec.securityContext": {"runAsNonRoot": True}},
    ),
    "resources of the proxy": (
        {"spec.proxy": ABSENT},
        {"spec.proxy": {"resources": {"requests": {"cpu": "1"}}}},
    ),
    "certificate": (
        {"spec.proxy": {"tls": {"secretName": "web"}, "service": {"port": 8443}}},
        {"spec.proxy": ABSENT},
    ),
    "keys": (
        {
            "spec.proxy": {
                "auth": {"apiKeys": {"secretName": "tenants"}, "tenantIsolation": "Salted"},
                "limits": {"maxPerTenant": 8},
            }
        },
        {"spec.proxy": {"auth": {}}},
    ),
    "log": (
        {"spec.proxy": {"accessLog": {"samplePercent": 5}}},
        {"spec.proxy": {"accessLog": {"policy": "All"}}},
    ),
    "rollout": (
        {"spec.encode": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}},
        {"spec.encode": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}},
    ),
}

APPLIES = {"client side": (), "server side": ("--server-side",)}


def spec_of(namespace: Namespace) -> dict[str, Any]:
    return dict(namespace.get("epd", "demo")["spec"])


def created(namespace: Namespace, changes: Changes) -> dict[str, Any]:
    """The spec of an object that is created with `changes` and nothing before it."""
    answer = namespace.create(changed(changes | {"metadata.name": "fresh"}), dry_run=True)
    assert answer.status_code == 201, answer.text
    return dict(answer.json()["spec"])


@pytest.mark.parametrize("flags", APPLIES.values(), ids=APPLIES)
@pytest.mark.parametrize(("first", "second"), SWITCHES.values(), ids=SWITCHES)
def test_switched_is_as_if_created_so(
    namespace: Namespace, first: Changes, second: Changes, flags: tuple[str, ...]
) -> None:
    namespace.apply(changed(first), *flags)
    namespace.apply(changed(second), *flags)
    assert spec_of(namespace) == created(namespace, second)

    namespace.apply(changed(first), *flags)
    assert spec_of(namespace) == created(namespace, first)


def test_defaults_are_written_where_no_union_is(namespace: Namespace) -> None:
    namespace.apply(E_PD)

    written = changed(
        {
            "spec.model.dtype": "auto",
            "spec.engine.device": "Auto",
            "spec.encoderCache.hashAlgorithm": "BLAKE3",
            "spec.encoderCache.garbageCollection": {
                "enabled": True,
                "versionGracePeriod": "1h",
                "minIdle": "30m",
                "highWatermarkPercent": 85,
                "lowWatermarkPercent": 70,
                "dryRun": False,
                "evictLiveEntries": False,
            },
            "spec.proxy": {
                "encoderFailurePolicy": "Fallback",
                "affinity": "None",
                "timeouts": {"request": "10m", "encode": "2m", "idle": "60s", "queue": "10s"},
                "limits": {"maxInFlight": 1024, "maxPerEngine": 1024, "maxQueued": 256, "maxFallbackEncodes": 8},
                "auth": {"tenantIsolation": "Shared", "requestPriority": "Forward"},
                "accessLog": {"policy": "Errors"},
                "service": {"type": "ClusterIP"},
                "media": {"maxBodySize": "64Mi"},
            },
            "spec.paused": False,
            "spec.suspend": False,
        }
    )
    assert spec_of(namespace) == written["spec"]
