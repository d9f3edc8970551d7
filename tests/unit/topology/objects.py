"""EPDDeployments for tests: a complete one, and changes to it by path."""

from __future__ import annotations

import copy
from typing import Any

from epd.api.types import EPDDeployment

E_PD: dict[str, Any] = {
    "model": {"name": "Qwen/Qwen2.5-VL-3B-Instruct", "revision": "66285546d2b821cf421d4f5eb2576359d3770cd3"},
    "engine": {"image": "vllm/vllm-openai:v0.33.0"},
    "encode": {"replicas": 2, "resources": {"limits": {"nvidia.com/gpu": 1}}},
    "prefillDecode": {"replicas": 4, "resources": {"limits": {"nvidia.com/gpu": 1}}},
    "encoderCache": {
        "volume": {
            "volumeClaimTemplate": {
                "spec": {
                    "storageClassName": "nfs",
                    "accessModes": ["ReadWriteMany"],
                    "resources": {"requests": {"storage": "100Gi"}},
                }
            }
        }
    },
}

ABSENT = object()
"""As a value in `epd`: the field is left out."""


def epd(changes: dict[str, Any] | None = None, /, *, name: str = "qwen-vl") -> EPDDeployment:
    """`E_PD` with `changes`: paths such as `encode.args` below spec, and what stands there."""
    spec = copy.deepcopy(E_PD)
    for path, value in (changes or {}).items():
        *parents, last = path.split(".")
        place = spec
        for parent in parents:
            place = place.setdefault(parent, {})
        if value is ABSENT:
            place.pop(last, None)
        else:
            place[last] = value
    return EPDDeployment.model_validate({"metadata": {"name": name, "namespace": "ai", "uid": "0-1"}, "spec": spec})
