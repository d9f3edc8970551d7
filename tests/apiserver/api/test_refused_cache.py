"""Encoder caches that the API server must refuse, and the words with which it does."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.api.objects import ABSENT, TEMPLATE
from apiserver.api.refusing import refused
from apiserver.server import Namespace

pytestmark = pytest.mark.apiserver

VOLUME = "spec.encoderCache.volume"
COLLECTION = "spec.encoderCache.garbageCollection"
CLAIM = f"{VOLUME}.volumeClaimTemplate.spec"

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
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
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(default: Namespace, changes: dict[str, Any], message: str) -> None:
    assert message in refused(default, changes)
