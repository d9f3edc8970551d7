from __future__ import annotations

from typing import Any

import pytest

from epd.controller import kinds
from epd.controller.keys import ClaimKey, claim_key, claims_of, collected_claim, keys_of, namespace_of, owner_key

BROUGHT = {"persistentVolumeClaim": {"claimName": "ec"}}
TEMPLATE = {"volumeClaimTemplate": {"spec": {}}}


def epd(volume: Any = None, *, status: Any = None) -> dict[str, Any]:
    metadata = {"name": "qwen", "namespace": "ai"}
    return {"metadata": metadata, "spec": {"encoderCache": {"volume": volume}}, "status": status}


def collector(**changes: Any) -> dict[str, Any]:
    metadata = {"name": "ec-collector", "namespace": "ai", "labels": {"epd.dev/collector": "ec-collector"},
                "annotations": {"epd.dev/claim": "ec"}}  # fmt: skip
    return {"metadata": {**metadata, **changes}}


@pytest.mark.parametrize(
    ("key", "expected"),
    [("claim/ai/ec", ClaimKey("ai", "ec")), ("ai/qwen", None), ("claim/qwen", None), ("ai/claim", None)],
)
def test_a_key_of_three_parts_is_a_claims(key: str, expected: ClaimKey | None) -> None:
    assert claim_key(key) == expected
    assert expected is None or str(expected) == key


def test_namespace_of() -> None:
    assert [namespace_of(key) for key in ("claim/ai/ec", "ai/qwen", "claim/qwen")] == ["ai", "ai", "claim"]


@pytest.mark.parametrize(
    ("parent", "claims"),
    [
        (epd(), set()),
        (epd(BROUGHT), {"ec"}),
        (epd(TEMPLATE), {"qwen-encoder-cache"}),
        (epd(BROUGHT, status={"encoderCache": {"claim": "old"}}), {"ec", "old"}),
        ({"metadata": {"name": "qwen", "namespace": "ai"}, "spec": "of another version"}, set()),
    ],
    ids=["none", "brought", "template", "before and after", "unreadable"],
)
def test_claims_of(parent: dict[str, Any], claims: set[str]) -> None:
    assert claims_of(parent) == {ClaimKey("ai", claim) for claim in claims}


def test_an_epddeployment_concerns_itself_and_its_claims() -> None:
    parent = epd(BROUGHT, status={"encoderCache": {"claim": "old"}})
    assert keys_of(kinds.EPD, parent) == ("ai/qwen", "claim/ai/ec", "claim/ai/old")


def test_a_child_concerns_its_object_and_a_collectors_child_its_claim() -> None:
    child = {"metadata": {"name": "qwen-encode", "namespace": "ai", "labels": {"epd.dev/name": "qwen"}}}
    stranger = {"metadata": {"name": "ec", "namespace": "ai"}}
    assert keys_of(kinds.DEPLOYMENT, child) == ("ai/qwen",)
    assert keys_of(kinds.POD, collector()) == ("claim/ai/ec",)
    assert keys_of(kinds.PERSISTENT_VOLUME_CLAIM, stranger) == ()
    assert owner_key(kinds.PERSISTENT_VOLUME_CLAIM, stranger) is None


def test_only_what_has_the_label_is_a_collectors() -> None:
    assert [collected_claim(c) for c in (collector(), collector(labels={}), collector(annotations=None))] == [
        "ec", "", "",
    ]  # fmt: skip
