from __future__ import annotations

from typing import Any

import pytest

from epd.api.names import ConditionType
from epd.api.types import EPDDeployment
from epd.cli.status import describe

VERSION = "v1-m-0123456789ab"


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    times = {"lastTransitionTime": "2026-11-29T12:00:00Z", "observedGeneration": 2}
    return {"type": kind, "status": status, "reason": reason, "message": message, **times}


def epd(status: dict[str, Any], *, generation: int = 2) -> EPDDeployment:
    metadata = {"name": "qwen-vl", "namespace": "ai", "generation": generation}
    spec = {"model": {"name": "m"}, "engine": {"image": "vllm:v0.33.0"}, "prefillDecode": {}}
    return EPDDeployment.model_validate({"metadata": metadata, "spec": spec, "status": status})


PULL = "pod qwen-vl-encode-1: repository does not exist"
STATUS: dict[str, Any] = {
    "observedGeneration": 2,
    "topology": "E|PD",
    "url": "http://qwen-vl.ai.svc",
    "modelVersion": VERSION,
    "engineVersion": {"version": "0.33.0", "origin": "Tag"},
    "encoderCache": {"claim": "qwen-vl-encoder-cache", "phase": "Bound", "capacity": "100Gi"},
    "roles": [
        {"name": "encode", "desired": 2, "ready": 1, "updated": 2, "modelVersions": [VERSION]},
        {"name": "prefill-decode", "desired": 4, "ready": 4, "updated": 4, "modelVersions": [VERSION, "v1-m-old"]},
    ],
    "conditions": [
        condition("Available", "True", "Serving"),
        condition("Ready", "False", "EncodeImagePull", PULL),
        condition("Reconciling", "False", "AsSpecified"),
        condition("EncodeReady", "False", "ImagePull", PULL),
        condition("PrefillDecodeReady", "True", "AllReady"),
        condition("UpdateAvailable", "True", "UpdateAvailable", "epd-operator 0.2.0"),
    ],
}


def test_all_of_it() -> None:
    assert describe(epd(STATUS)) == (
        "ai/qwen-vl     E|PD http://qwen-vl.ai.svc\n"
        f"model version  {VERSION}\n"
        "engine         vLLM 0.33.0 (Tag)\n"
        "encoder cache  qwen-vl-encoder-cache Bound 100Gi\n"
        "\n"
        "ROLE            READY  UPDATED  MODEL VERSIONS\n"
        f"encode          1/2    2        {VERSION}\n"
        f"prefill-decode  4/4    4        {VERSION} v1-m-old\n"
        "\n"
        "CONDITION           STATUS  REASON\n"
        "Available           True    Serving\n"
        "Ready               False   EncodeImagePull\n"
        "Reconciling         False   AsSpecified\n"
        "EncodeReady         False   ImagePull\n"
        "PrefillDecodeReady  True    AllReady\n"
        "UpdateAvailable     True    UpdateAvailable\n"
        "\n"
        "EncodeReady: ImagePull\n"
        f"  {PULL}\n"
        "  An image cannot be pulled: a wrong name, a missing pull secret, or no network.\n"
        "\n"
        "UpdateAvailable: UpdateAvailable\n"
        "  epd-operator 0.2.0\n"
        "  See the condition of this name.\n"
    )


def test_before_the_first_reconcile() -> None:
    pending = {"observedGeneration": 0, "conditions": [condition("Ready", "Unknown", "Pending", "Waiting")]}
    assert describe(epd(pending, generation=1)) == (
        "ai/qwen-vl\n"
        "The operator has not seen the latest change of the spec yet; what follows speaks of earlier ones.\n"
        "\n"
        "CONDITION  STATUS   REASON\n"
        "Ready      Unknown  Pending\n"
        "\n"
        "Ready: Pending\n"
        "  Waiting\n"
        "  Not looked at yet, or a child is being made. Wait.\n"
    )


@pytest.mark.parametrize(
    ("reason", "meaning"),
    [
        ("EncodeOOMKilled", "  The container ran out of memory.\n"),
        ("PrefillDecodeOOMKilled", "  The container ran out of memory.\n"),
        ("NotWritable", "  The engines' user cannot write to the claim;"),
        ("OfALaterOperator", "Ready: OfALaterOperator\n"),
    ],
)
def test_a_reason_of_a_part_is_explained(reason: str, meaning: str) -> None:
    assert meaning in describe(epd({"conditions": [condition("Ready", "False", reason)]}))


@pytest.mark.parametrize("kind", ConditionType)
def test_what_is_well_is_not_explained(kind: ConditionType) -> None:
    abnormal = kind in ("Reconciling", "Stalled", "UpdateAvailable")
    for status, well in (("True", not abnormal), ("False", abnormal)):
        found = describe(epd({"observedGeneration": 2, "conditions": [condition(kind, status, "AllReady", "words")]}))
        assert ("words" not in found) is well


CACHE: dict[str, Any] = {
    "claim": "ec",
    "phase": "Bound",
    "used": "3Gi",
    "entries": 12,
    "foreign": "512",
    "versions": [
        {"name": VERSION, "state": "Live", "entries": 7, "used": "2Gi", "users": ["qwen-vl", "other"]},
        {"name": "v1-m-old", "state": "Condemned", "entries": 5, "used": "1Gi"},
    ],
    "policy": {
        "enabled": True,
        "dryRun": True,
        "versionGracePeriod": "1h",
        "minIdle": "30m",
        "highWatermarkPercent": 85,
        "lowWatermarkPercent": 70,
        "origins": {"dryRun": "other"},
    },
    "lastCollection": {
        "finished": "2026-11-29T13:00:00Z",
        "removedEntries": 5,
        "removedVersions": 1,
        "freed": "1Gi",
    },
}


def test_the_store() -> None:
    assert describe(epd({"observedGeneration": 2, "topology": "E|PD", "encoderCache": CACHE})) == (
        "ai/qwen-vl     E|PD\n"
        "encoder cache  ec Bound\n"
        "\n"
        "cached        3Gi in 12 entries, and 512 that are not the cache's\n"
        "policy        versionGracePeriod 1h, minIdle 30m, highWatermarkPercent 85, lowWatermarkPercent 70, "
        "dryRun true of other\n"
        "last deleted  1Gi in 5 entries and 1 versions, 2026-11-29T13:00:00Z\n"
        "\n"
        "CACHE VERSION      STATE      ENTRIES  USED  USERS\n"
        f"{VERSION}  Live       7        2Gi   qwen-vl other\n"
        "v1-m-old           Condemned  5        1Gi\n"
        "\n"
        "CONDITION  STATUS  REASON\n"
    )


def test_a_store_that_nothing_is_deleted_from() -> None:
    policy = CACHE["policy"] | {"enabled": False, "origins": {"enabled": "other"}}
    found = describe(epd({"encoderCache": CACHE | {"policy": policy, "foreign": "0", "versions": []}}))
    assert "cached        3Gi in 12 entries\n" in found
    assert "policy        nothing is deleted (enabled: false of other)\n" in found
    assert "CACHE VERSION" not in found
