"""EPDDeployments for the tests of the API: one valid object, and how to change it."""

from __future__ import annotations

import copy
from typing import Any

ABSENT = object()
"""In changes: the field is not there."""

TEMPLATE: dict[str, Any] = {
    "spec": {
        "storageClassName": "nfs",
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "100Gi"}},
    }
}

E_PD: dict[str, Any] = {
    "apiVersion": "epd.dev/v1alpha1",
    "kind": "EPDDeployment",
    "metadata": {"name": "demo"},
    "spec": {
        "model": {"name": "Qwen/Qwen2.5-VL-3B-Instruct", "revision": "66285546d2b821cf421d4f5eb2576359d3770cd3"},
        "engine": {"image": "vllm/vllm-openai:v0.33.0"},
        "encode": {"replicas": 1, "resources": {"limits": {"nvidia.com/gpu": 1}}},
        "prefillDecode": {"replicas": 2, "resources": {"limits": {"nvidia.com/gpu": "1"}}},
        "encoderCache": {"connector": "Example", "volume": {"volumeClaimTemplate": TEMPLATE}},
    },
}


def changed(changes: dict[str, Any], base: dict[str, Any] = E_PD) -> dict[str, Any]:
    """`base` with fields set by their paths, such as `spec.encode.replicas`; `ABSENT` removes one."""
    manifest = copy.deepcopy(base)
    for path, value in changes.items():
        *parents, last = path.split(".")
        target = manifest
        for parent in parents:
            target = target.setdefault(parent, {})
        if value is ABSENT:
            target.pop(last, None)
        else:
            target[last] = copy.deepcopy(value)
    return manifest
