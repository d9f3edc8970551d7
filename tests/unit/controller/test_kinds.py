from __future__ import annotations

import pytest

from epd.controller import kinds
from epd.controller.kinds import Kind, controlled_by, kind_of


@pytest.mark.parametrize(
    ("kind", "parts", "path"),
    [
        (kinds.POD, ("ai",), "/api/v1/namespaces/ai/pods"),
        (kinds.EPD, ("",), "/apis/epd.dev/v1alpha1/epddeployments"),
        (kinds.EPD, ("ai", "q", "status"), "/apis/epd.dev/v1alpha1/namespaces/ai/epddeployments/q/status"),
    ],
)
def test_paths(kind: Kind, parts: tuple[str, ...], path: str) -> None:
    assert kind.path(*parts) == path


def test_kind_of() -> None:
    assert kind_of({"apiVersion": "apps/v1", "kind": "Deployment"}) == kinds.DEPLOYMENT
    with pytest.raises(KeyError):
        kind_of({"apiVersion": "v1", "kind": "Secret"})


def test_only_a_controller_counts_as_owner() -> None:
    def owned(**reference: object) -> dict[str, object]:
        return {"metadata": {"ownerReferences": [{"uid": "u", **reference}]}}

    assert [controlled_by(owned(controller=c), "u") for c in (True, False)] == [True, False]
    assert not controlled_by(owned(controller=True), "v")
    assert not controlled_by({"metadata": {}}, "u")
