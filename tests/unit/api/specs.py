"""A spec that is valid, with one field changed, and what is found in it."""

from __future__ import annotations

import copy
from typing import Any

from epd.api.types import EPDDeployment
from epd.api.validation import Problem, problems

BASE: dict[str, Any] = {
    "metadata": {"name": "demo"},
    "spec": {
        "model": {"name": "m"},
        "engine": {"image": "vllm/vllm-openai:v0.33.0"},
        "encode": {},
        "prefillDecode": {},
        "encoderCache": {"volume": {"persistentVolumeClaim": {"claimName": "ec"}}},
    },
}


def found(path: str, value: Any) -> tuple[Problem, ...]:
    manifest = copy.deepcopy(BASE)
    *parents, last = path.split(".")
    target = manifest
    for parent in parents:
        target = target.setdefault(parent, {})
    target[last] = value
    return problems(EPDDeployment.model_validate(manifest))


def container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "sidecar", "image": "x", "args": ["-v"]}, {"name": "engine", **fields}]}}
