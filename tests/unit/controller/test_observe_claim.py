from __future__ import annotations

from typing import Any

import pytest

from epd.controller import kinds
from epd.controller.keys import ClaimKey
from epd.controller.observe_claim import ObservedClaim, collector_of_ours, node_beside
from epd.controller.plan import ChildKey

OURS = {"app.kubernetes.io/managed-by": "epd-operator", "epd.dev/collector": "ec-collector"}
OWNER = {"kind": "EPDDeployment", "controller": False}


def deployment(labels: Any = OURS, owners: Any = (OWNER,), **metadata: Any) -> dict[str, Any]:
    meta = {"name": "ec-collector", "labels": labels, "ownerReferences": owners, "annotations": {"epd.dev/claim": "ec"}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {**meta, **metadata}}


@pytest.mark.parametrize(
    ("live", "ours"),
    [
        (deployment(), True),
        (deployment(owners=None), True),
        (deployment(labels=None), True),
        (deployment(labels=None, owners=None), False),
        (deployment(labels=None, owners=(OWNER, {"kind": "Job"})), False),
        (deployment(owners=({"kind": "EPDDeployment", "controller": True},)), False),
        (deployment(labels={"epd.dev/collector": "x"}, owners=None), False),
    ],
    ids=[
        "made",
        "owners taken",
        "labels taken",
        "a stranger's",
        "half ours",
        "an EPDDeployment's child",
        "half a label",
    ],
)
def test_whose_a_collector_is(live: dict[str, Any], ours: bool) -> None:
    assert collector_of_ours(live) is ours


def test_only_collectors_of_the_claim_that_are_not_leaving_may_go() -> None:
    seen = ObservedClaim(key=ClaimKey("ai", "ec"))
    assert seen.prunable(deployment())
    assert not seen.prunable(deployment(annotations={"epd.dev/claim": "other"}))
    assert not seen.prunable(deployment(deletionTimestamp="now"))
    assert not seen.prunable(deployment(labels=None, owners=None))


def engine(claim: str = "ec", node: str = "n1", **labels: str) -> dict[str, Any]:
    volumes = [{"name": "encoder-cache", "persistentVolumeClaim": {"claimName": claim}}]
    return {
        "metadata": {"labels": labels or {"llm-d.ai/role": "encode"}},
        "spec": {"volumes": volumes, "nodeName": node},
    }


@pytest.mark.parametrize(
    ("phase", "pods", "placed"),
    [
        ("Bound", (engine(),), True),
        ("Pending", (engine(),), False),
        ("Bound", (engine(node=""),), False),
        ("Bound", (engine(claim="other"),), False),
        ("Bound", (engine(other="label"),), False),
        ("Bound", (), False),
    ],
    ids=["placed", "unbound", "no node", "another claim", "no engine", "no pod"],
)
def test_a_collector_follows_an_engine(phase: str, pods: tuple[dict[str, Any], ...], placed: bool) -> None:
    claim = {"status": {"phase": phase}}
    assert ObservedClaim(key=ClaimKey("ai", "ec"), claim=claim, pods=pods).placed is placed


def test_what_is_written_replaces_what_was_seen() -> None:
    key: ChildKey = (kinds.DEPLOYMENT, "ec-collector")
    seen = ObservedClaim(key=ClaimKey("ai", "ec"), children={key: deployment()})
    later = seen.with_children([deployment(generation=2)])
    assert later.children[key]["metadata"]["generation"] == 2
    assert later.with_children((), gone=[deployment()]).children == {}
    assert seen.children[key] == deployment()


@pytest.mark.parametrize(
    ("made_for", "pods", "node"),
    [
        (None, (), ""),
        (None, (engine(node="n2"), engine(node="n1")), "n1"),
        ("n2", (engine(node="n2"), engine(node="n1")), "n2"),
        ("n2", (engine(node="n1"),), "n1"),
        ("n2", (engine(node=""), engine(claim="other"), engine(other="label")), "n2"),
        ("n2", (engine(node="n1") | {"metadata": {**engine()["metadata"], "deletionTimestamp": "now"}},), "n2"),
    ],
)
def test_a_collector_is_where_engines_are(made_for: str | None, pods: Any, node: str) -> None:
    annotations = {} if made_for is None else {"epd.dev/node": made_for}
    collector = deployment() | {"spec": {"template": {"metadata": {"annotations": annotations}}}}
    assert node_beside(collector, pods, "ec") == node
    assert made_for is not None or node_beside(None, pods, "ec") == node
