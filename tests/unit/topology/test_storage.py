from __future__ import annotations

from typing import Any

import pytest

from epd.api.types import ClaimRef
from epd.topology import storage
from unit.topology.objects import ABSENT, epd

HUB: dict[str, Any] = {"model.source": {"huggingFace": {"cacheClaim": {"claimName": "hf"}, "offline": True}}}
CLAIM: dict[str, Any] = {"model.source": {"persistentVolumeClaim": {"claimName": "weights", "subPath": "qwen"}}}
BROUGHT: dict[str, Any] = {"encoderCache.volume": {"persistentVolumeClaim": {"claimName": "ec", "subPath": "a"}}}


def modes(*given: str) -> dict[str, Any]:
    return {"encoderCache.volume.volumeClaimTemplate.spec.accessModes": list(given)}


def test_weights_from_a_hub() -> None:
    spec = epd().spec
    assert storage.model_claim(spec) is None
    assert storage.model_reference(spec) == "Qwen/Qwen2.5-VL-3B-Instruct"
    assert storage.hf_cache_claim(spec) is None
    assert not storage.offline(spec)


def test_weights_from_a_hub_cache() -> None:
    spec = epd(HUB).spec
    assert storage.model_reference(spec) == "Qwen/Qwen2.5-VL-3B-Instruct"
    assert storage.hf_cache_claim(spec) == ClaimRef(claim_name="hf")
    assert storage.offline(spec)


def test_weights_from_a_claim() -> None:
    spec = epd(CLAIM).spec
    assert storage.model_claim(spec) == ClaimRef(claim_name="weights", sub_path="qwen")
    assert storage.model_reference(spec) == "/var/lib/epd/model"
    assert storage.hf_cache_claim(spec) is None
    assert storage.offline(spec)


@pytest.mark.parametrize(
    ("changes", "claim"),
    [
        ({}, ClaimRef(claim_name="qwen-vl-encoder-cache")),
        (BROUGHT, ClaimRef(claim_name="ec", sub_path="a")),
        ({"encoderCache.volume": ABSENT}, None),
        ({"encoderCache": ABSENT}, None),
    ],
)
def test_encoder_cache_claim(changes: dict[str, Any], claim: ClaimRef | None) -> None:
    assert storage.encoder_cache_claim(epd(changes)) == claim


CUSTOM: dict[str, Any] = {"encoderCache.connector": "Custom", "encoderCache.custom": {"module": "a", "class": "B"}}


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, True),
        (BROUGHT, True),
        ({"encoderCache.connector": "Example"}, True),
        ({"encoderCache.garbageCollection": {"enabled": False}}, False),
        (CUSTOM, False),
        (CUSTOM | {"encoderCache.volume": ABSENT}, False),
        ({"encoderCache": ABSENT}, False),
    ],
)
def test_wants_collector(changes: dict[str, Any], wanted: bool) -> None:
    assert storage.wants_collector(epd(changes)) is wanted


@pytest.mark.parametrize(
    ("changes", "access_modes", "single_node"),
    [
        ({}, ["ReadWriteMany"], False),
        (modes("ReadWriteOnce"), ["ReadWriteOnce"], True),
        (modes("ReadWriteOnce", "ReadWriteMany"), ["ReadWriteOnce", "ReadWriteMany"], False),
        ({"encoderCache.volume.volumeClaimTemplate.spec.accessModes": ABSENT}, ["ReadWriteMany"], False),
        (BROUGHT, ["ReadWriteMany"], False),
        ({"encoderCache": ABSENT}, ["ReadWriteMany"], False),
    ],
)
def test_access_modes(changes: dict[str, Any], access_modes: list[str], single_node: bool) -> None:
    spec = epd(changes).spec
    assert (storage.access_modes(spec), storage.single_node(spec)) == (access_modes, single_node)


def test_version_directory() -> None:
    assert storage.version_directory("v1-a-0") == "/var/lib/epd/encoder-cache/v1-a-0"
