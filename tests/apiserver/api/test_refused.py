"""Names, topologies and models that the API server must refuse, and the words with which it does."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.api.objects import ABSENT
from apiserver.api.refusing import refused
from apiserver.server import Namespace

pytestmark = pytest.mark.apiserver

VOLUME = "spec.encoderCache.volume"

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    # names
    "name too long": ({"metadata.name": "a" * 46}, "metadata.name: at most 45 characters"),
    "name begins with a digit": ({"metadata.name": "7b"}, "beginning with a letter"),
    "name with a dot": ({"metadata.name": "qwen.vl"}, "metadata.name: at most 45 characters, lower-case letters"),
    # topology
    "no prefill side": (
        {"spec.prefillDecode": ABSENT},
        "spec: set prefillDecode. prefillDecode alone is aggregated; with encode it is E|PD",
    ),
    "prefill is not built yet": ({"spec.prefill": {}}, 'unknown field "spec.prefill"'),
    "decode is not built yet": ({"spec.decode": {}}, 'unknown field "spec.decode"'),
    "encode without a cache": ({"spec.encoderCache": ABSENT}, "spec.encoderCache is required with spec.encode"),
    "nothing that generates": (
        {"spec.prefillDecode.replicas": 0},
        "spec.prefillDecode.replicas must be at least 1; to stop every engine, set spec.suspend: true",
    ),
    # model
    "no model": ({"spec.model": ABSENT}, "spec.model: Required value"),
    "no model name": ({"spec.model.name": ABSENT}, "spec.model.name: Required value"),
    "model name is a flag": ({"spec.model.name": "--help"}, "spec.model.name in body should match"),
    "unquoted revision": (
        {"spec.model.revision": 66285546e2},
        "spec.model.revision in body must be of type string",
    ),
    "served name twice": ({"spec.model.servedNames": ["a", "a"]}, 'spec.model.servedNames[1]: Duplicate value: "a"'),
    "served name with a space": ({"spec.model.servedNames": ["my model"]}, "spec.model.servedNames[0] in body should"),
    "unknown dtype": ({"spec.model.dtype": "fp8"}, 'Unsupported value: "fp8": supported values: "auto", "bfloat16"'),
    "no room for a token": ({"spec.model.maxModelLen": 0}, "spec.model.maxModelLen in body should be greater than"),
    "unknown kind of media": (
        {"spec.model.mediaLimits": {"images": 4}},
        'unknown field "spec.model.mediaLimits.images"',
    ),
    "two sources": (
        {"spec.model.source": {"huggingFace": {}, "persistentVolumeClaim": {"claimName": "w"}}},
        "spec.model.source: set exactly one of huggingFace and persistentVolumeClaim",
    ),
    "empty source": (
        {"spec.model.source": {}},
        "spec.model.source: set exactly one of huggingFace and persistentVolumeClaim",
    ),
    "offline without a cache": (
        {"spec.model.source": {"huggingFace": {"offline": True}}},
        "spec.model.source.huggingFace.offline needs cacheClaim",
    ),
    "absolute sub-path": (
        {"spec.model.source": {"persistentVolumeClaim": {"claimName": "w", "subPath": "/qwen"}}},
        "spec.model.source.persistentVolumeClaim.subPath: must be a relative path without '..'",
    ),
    "sub-path that climbs": (
        {VOLUME: {"persistentVolumeClaim": {"claimName": "ec", "subPath": "a/../../b"}}},
        "must be a relative path without '..'",
    ),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(default: Namespace, changes: dict[str, Any], message: str) -> None:
    assert message in refused(default, changes)
