from __future__ import annotations

from typing import Any

import pytest

from epd.controller.replicas import ANNOTATION_RESUME, hand_over, main_manifest, stop

MAIN, SECOND = "epd-operator", "epd-operator-replicas"


def live(replicas: int, *, held_by: tuple[str, ...] = (), resume: str | None = None) -> dict[str, Any]:
    entries = [{"manager": m, "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}} for m in held_by]
    metadata = {"name": "qwen-encode", "namespace": "ai", "uid": "u", "managedFields": entries}
    if resume is not None:
        metadata["annotations"] = {ANNOTATION_RESUME: resume}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": replicas}}


def body(replicas: int | None = None, resume: str | None = None) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "qwen-encode", "namespace": "ai", "uid": "u"}
    if resume is not None:
        metadata["annotations"] = {ANNOTATION_RESUME: resume}
    spec = {"spec": {"replicas": replicas}} if replicas is not None else {}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, **spec}


@pytest.mark.parametrize(
    ("deployment", "external", "suspended", "expected"),
    [
        (None, True, False, None),
        (live(3, held_by=(MAIN,)), False, False, None),
        (live(3, held_by=(MAIN,)), False, True, None),
        (live(3, held_by=(MAIN,)), True, False, body(3)),
        (live(3, held_by=(MAIN, SECOND)), True, False, body(3)),
        (live(3, held_by=(SECOND,)), True, False, None),
        (live(7), True, False, None),
        (live(7), True, True, body(0, "7")),
        (live(0, held_by=(SECOND,), resume="7"), True, True, None),
        (live(2, resume="7"), True, True, body(0, "7")),
        (live(0, held_by=(SECOND,), resume="7"), True, False, body(7)),
        (live(0, held_by=(SECOND,), resume="0"), True, False, body(1)),
        (live(0, held_by=(SECOND,), resume="bad"), True, False, body(1)),
        (live(0, held_by=(SECOND,), resume="7"), False, False, None),
        (live(2, held_by=(MAIN, SECOND), resume="7"), False, False, body()),
    ],
    ids=[
        "absent", "static", "static suspended", "taken over", "taken over, crashed between", "handed over", "scaled",
        "suspended", "still suspended", "scaled up while suspended", "resumed", "resumed from zero", "mangled",
        "back to static, not taken yet", "back to static",
    ],
)  # fmt: skip
def test_hand_over(deployment: Any, external: bool, suspended: bool, expected: Any) -> None:
    assert hand_over(deployment, external=external, suspended=suspended) == expected


@pytest.mark.parametrize(
    ("external", "suspended", "made", "replicas"),
    [(False, True, True, 0), (True, False, False, None), (True, True, True, None), (True, True, False, 0)],
)
def test_main_manifest(external: bool, suspended: bool, made: bool, replicas: int | None) -> None:
    desired = {"spec": {"replicas": 0, "template": {}}}
    manifest = main_manifest(desired, live=live(1) if made else None, external=external, suspended=suspended)
    assert manifest["spec"].get("replicas") == replicas
    assert desired == {"spec": {"replicas": 0, "template": {}}}


def test_roles_of_an_object_that_goes_are_stopped_once_and_nothing_else() -> None:
    role, proxy, ending = live(2), live(2), live(2)
    role["metadata"]["labels"] = ending["metadata"]["labels"] = {"llm-d.ai/role": "encode"}
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert stop(role) == body(0)
    assert [stop(proxy), stop(ending), stop({**role, "spec": {"replicas": 0}})] == [None, None, None]
