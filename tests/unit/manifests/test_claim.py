from __future__ import annotations

from typing import Any

import pytest

from epd.manifests.claim import claim
from unit.topology.objects import ABSENT, epd

TEMPLATE = "encoderCache.volume.volumeClaimTemplate"


def test_made_from_the_template() -> None:
    metadata = {"labels": {"team": "a", "epd.dev/name": "x"}, "annotations": {"b": "c"}}
    (child,) = claim(epd({f"{TEMPLATE}.metadata": metadata}))
    assert child["metadata"]["name"] == "qwen-vl-encoder-cache"
    assert child["metadata"]["labels"]["team"] == "a"
    assert child["metadata"]["labels"]["epd.dev/name"] == "qwen-vl"
    assert child["metadata"]["annotations"] == {"b": "c"}
    assert child["spec"] == {
        "storageClassName": "nfs",
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "100Gi"}},
    }


def test_several_nodes_by_default() -> None:
    (child,) = claim(epd({f"{TEMPLATE}.spec.accessModes": ABSENT}))
    assert child["spec"]["accessModes"] == ["ReadWriteMany"]


@pytest.mark.parametrize(("policy", "owned"), [(ABSENT, True), ("Delete", True), ("Retain", False)])
def test_retain_has_no_owner(policy: Any, owned: bool) -> None:
    (child,) = claim(epd({"encoderCache.reclaimPolicy": policy}))
    assert ("ownerReferences" in child["metadata"]) is owned


@pytest.mark.parametrize(
    "changes",
    [
        {"encoderCache.volume": {"persistentVolumeClaim": {"claimName": "ec"}}},
        {"encoderCache.volume": ABSENT},
        {"encoderCache": ABSENT},
    ],
)
def test_nothing_to_make(changes: dict[str, Any]) -> None:
    assert claim(epd(changes)) == ()
