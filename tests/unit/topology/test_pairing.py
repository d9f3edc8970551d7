from __future__ import annotations

from typing import Any

import pytest

from epd.topology.canonical import digest
from epd.topology.model_version import model_version
from epd.topology.pairing import pairing, pairing_inputs
from unit.topology.objects import ABSENT, epd


def test_what_it_is_made_of() -> None:
    given = epd(
        {
            "encoderCache.connector": "Custom",
            "encoderCache.custom": {"module": "acme.connectors", "class": "Redis"},
            "encoderCache.extraConfig": {"address": "redis:6379"},
            "encoderCache.volume": {"persistentVolumeClaim": {"claimName": "ec", "subPath": "a"}},
            "model.source": {"huggingFace": {"offline": True}},
        }
    )
    assert pairing_inputs(given) == {
        "modelVersion": model_version(given.spec),
        "image": "vllm/vllm-openai:v0.33.0",
        "model": "Qwen/Qwen2.5-VL-3B-Instruct",
        "offline": True,
        "connector": "Custom",
        "custom": ["acme.connectors", "Redis"],
        "extraConfig": {"address": "redis:6379"},
        "claim": ["ec", "a"],
    }
    assert pairing(given) == digest(pairing_inputs(given), length=12)


def test_without_an_encoder_cache() -> None:
    inputs = pairing_inputs(epd({"encode": ABSENT, "encoderCache": ABSENT}))
    assert (inputs["connector"], inputs["claim"]) == (None, None)


@pytest.mark.parametrize(
    "changes",
    [
        {"engine.image": "vllm/vllm-openai:v0.33.1"},
        {"model.revision": "other"},
        {"model.source": {"huggingFace": {"offline": True}}},
        {"encoderCache.extraConfig": {"a": 1}},
        {"encoderCache.volume": {"persistentVolumeClaim": {"claimName": "ec"}}},
    ],
)
def test_old_and_new_are_no_pair(changes: dict[str, Any]) -> None:
    assert pairing(epd(changes)) != pairing(epd())


@pytest.mark.parametrize(
    "changes",
    [
        {"encode.args": ["--max-num-seqs", "8"]},
        {"prefillDecode.resources": {"limits": {"nvidia.com/gpu": 1, "memory": "64Gi"}}},
        {"encoderCache.reclaimPolicy": "Retain"},
        {"restartedAt": "now"},
        {"model.maxModelLen": 4096},
    ],
)
def test_old_and_new_are_a_pair(changes: dict[str, Any]) -> None:
    assert pairing(epd(changes)) == pairing(epd())
