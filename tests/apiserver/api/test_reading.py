"""What people read: the table, the explanations, the answer to a typo."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.api.objects import E_PD, changed
from apiserver.server import ApiServer, Namespace

pytestmark = pytest.mark.apiserver


def condition(kind: str, status: str, reason: str) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "lastTransitionTime": "2026-11-29T12:00:00Z",
        "observedGeneration": 1,
    }


STATUS = {
    "observedGeneration": 1,
    "url": "http://demo.ai.svc",
    "topology": "E|PD",
    "modelVersion": "v1-qwen2-5-vl-3b-instruct-0123456789ab",
    "engineVersion": {"version": "0.33.0", "origin": "Tag"},
    "roleSummary": "1E 1/2PD",
    "roles": [{"name": "encode", "desired": 1, "ready": 1, "updated": 1, "modelVersions": ["v1-a"]}],
    "encoderCache": {
        "claim": "demo-encoder-cache",
        "phase": "Bound",
        "capacity": "100Gi",
        "used": "12.3Gi",
        "usedBytes": 13_207_024_436,
        "entries": 4096,
        "foreign": "0",
        "freed": "1Gi",
        "rootID": "0-1",
        "versionCount": 1,
        "versions": [
            {
                "name": "v1-qwen2-5-vl-3b-instruct-0123456789ab",
                "state": "Live",
                "entries": 4096,
                "used": "12.3Gi",
                "since": "2026-11-29T12:00:00Z",
                "users": ["demo"],
            }
        ],
        "policy": {
            "enabled": True,
            "dryRun": False,
            "versionGracePeriod": "1h",
            "minIdle": "30m",
            "highWatermarkPercent": 85,
            "lowWatermarkPercent": 70,
            "origins": {"minIdle": "demo"},
        },
        "lastCollection": {
            "finished": "2026-11-29T12:00:00Z",
            "removedEntries": 7,
            "removedVersions": 1,
            "freed": "1Gi",
        },
    },
    "conditions": [condition("Available", "True", "Serving"), condition("Ready", "False", "RollingOut")],
}


def test_table(namespace: Namespace) -> None:
    namespace.apply(E_PD)
    namespace.set_status("demo", STATUS)

    header, row = (line.split() for line in namespace.kubectl("get", "epd").stdout.splitlines())

    assert header == ["NAME", "MODEL", "ROLES", "AVAILABLE", "READY", "REASON", "URL", "AGE"]
    assert row[:-1] == [
        "demo",
        "Qwen/Qwen2.5-VL-3B-Instruct",
        *("1E", "1/2PD"),
        "True",
        "False",
        "RollingOut",
        "http://demo.ai.svc",
    ]


def test_wide_table(namespace: Namespace) -> None:
    namespace.apply(E_PD)
    namespace.set_status("demo", STATUS)

    header, row = (line.split() for line in namespace.kubectl("get", "epd", "-o", "wide").stdout.splitlines())

    assert header[-6:] == ["TOPOLOGY", "VERSION", "EC", "USED", "IMAGE", "ENGINE"]
    assert row[-5:] == [
        *("E|PD", "v1-qwen2-5-vl-3b-instruct-0123456789ab", "12.3Gi", "vllm/vllm-openai:v0.33.0", "0.33.0"),
    ]


def test_the_whole_state_of_the_store_is_kept(namespace: Namespace) -> None:
    namespace.apply(E_PD)
    namespace.set_status("demo", STATUS)

    assert namespace.get("epd", "demo")["status"]["encoderCache"] == STATUS["encoderCache"]


def test_table_before_the_first_reconcile(namespace: Namespace) -> None:
    namespace.apply(E_PD)

    _, row = (line.split() for line in namespace.kubectl("get", "epd").stdout.splitlines())

    assert row[:-1] == ["demo", "Qwen/Qwen2.5-VL-3B-Instruct", "Unknown", "Pending"]


def test_found_by_category(namespace: Namespace) -> None:
    namespace.apply(E_PD)

    assert namespace.kubectl("get", "vllm", "-o", "name").stdout == "epddeployment.epd.dev/demo\n"


EXPLAINED = {
    "epd.spec.encode.replicas": "Number of engines. Default: 1. Must be absent when scaling.mode is External. "
    "Change: adds or removes pods; none restarts.",
    "epd.spec.model.dtype": "Data type of weights and activations, for example `bfloat16`; `auto` is as the model "
    "says. Default: auto. Change: new cache version, rolls all roles.",
    "epd.spec.encoderCache.volume.volumeClaimTemplate.spec.storageClassName": "Class of the storage, for example "
    "`nfs`. Absent: the cluster's default class. Change: refused.",
    "epd.spec.paused": "Leaves everything running and changes nothing until it is false again; status goes on. "
    "Change: none.",
}


@pytest.mark.parametrize(("path", "text"), EXPLAINED.items(), ids=EXPLAINED)
def test_explain(api_server: ApiServer, path: str, text: str) -> None:
    output = api_server.kubectl("explain", path).stdout

    assert text in " ".join(output.split())


def test_a_typo_is_named_by_kubectl(namespace: Namespace) -> None:
    done = namespace.apply(changed({"spec.prefill": {"replicas": 1}}), check=False)

    assert 'unknown field "spec.prefill"' in done.stderr
