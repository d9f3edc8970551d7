from __future__ import annotations

from typing import Any

import pytest

from epd.api import names
from epd.api.names import ConditionType, Role
from epd.api.types import EncoderCacheStatus, EPDDeployment, RoleStatus
from epd.controller import kinds
from epd.controller.build import ThisBuild
from epd.controller.conditions import Finding
from epd.controller.observe import Observed
from epd.controller.status import Circumstances, field_of, part_reason, status_of
from unit.controller import objects

OWNER = {"uid": "owner", "controller": True}
CLAIM = {
    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "ec", "namespace": "ai"},
    "spec": {"accessModes": ["ReadWriteMany"]}, "status": {"phase": "Bound", "capacity": {"storage": "10Gi"}},
}  # fmt: skip


def epd(**spec: Any) -> EPDDeployment:
    cache = {"volume": {"persistentVolumeClaim": {"claimName": "ec"}}}
    base = {"model": {"name": "m"}, "engine": {"image": "vllm:v0.33.0"}, "encode": {"replicas": 2}, "prefillDecode": {}}
    metadata = {"name": "qwen", "namespace": "ai", "uid": "owner", "generation": 3}
    return EPDDeployment.model_validate({"metadata": metadata, "spec": {**base, "encoderCache": cache, **spec}})


def deployment(name: str, want: int, ready: int | None = None) -> dict[str, Any]:
    up = want if ready is None else ready
    status = {"observedGeneration": 1, "replicas": want, "updatedReplicas": want, "readyReplicas": up}
    metadata = {"name": name, "namespace": "ai", "uid": name, "generation": 1, "ownerReferences": [OWNER]}
    spec, status = {"replicas": want}, {**status, "availableReplicas": up}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec, "status": status}


def labelled(pod: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
    return {**pod, "metadata": {**pod["metadata"], "labels": labels}}


def engine(pod: dict[str, Any], role: Role, version: str = "v1-a") -> dict[str, Any]:
    return labelled(pod, {names.LABEL_ROLE: role, names.LABEL_MODEL_VERSION: version})


def proxy(port: str) -> dict[str, Any]:
    pod = labelled(objects.ready("qwen-proxy-1"), {names.LABEL_COMPONENT: "proxy"})
    return pod | {"spec": {"containers": [{"name": "proxy", "ports": [{"name": port, "containerPort": 8000}]}]}}


PROXY = proxy("http")
ENCODER = engine(objects.ready("e"), Role.ENCODE)
ANSWERER = engine(objects.ready("pd"), Role.PREFILL_DECODE)
JOB = {
    "apiVersion": "batch/v1", "kind": "Job", "status": {"succeeded": 1},
    "metadata": {"name": "check", "ownerReferences": [OWNER], "labels": {names.LABEL_COMPONENT: "preflight"}},
}  # fmt: skip
UP = (deployment("qwen-encode", 2), deployment("qwen-prefilldecode", 1), deployment("qwen-proxy", 2), JOB)
ALL_PODS = (PROXY, ENCODER, ANSWERER)


def shown(
    children: tuple[dict[str, Any], ...] = UP,
    pods: tuple[dict[str, Any], ...] = ALL_PODS,
    circumstances: Circumstances | None = None,
    claim: dict[str, Any] | None = CLAIM,
    **spec: Any,
) -> Any:
    obj = epd(**spec)
    observed = Observed(
        owner_uid="owner", children={(kinds.kind_of(c), kinds.name_of(c)): c for c in children}, pods=pods,
        claim_wanted=True, claim=claim,
    )  # fmt: skip
    facts = ThisBuild(operator_image="i").facts(obj)
    return status_of(obj, facts, observed, circumstances or Circumstances(), now="t")


def test_no_field_of_the_proxy_says_how_it_rolls() -> None:
    crowded = objects.unschedulable("0/1 nodes are available: 1 Insufficient cpu.")
    rolling = deployment("qwen-proxy", 2)
    rolling["status"] |= {"replicas": 3, "updatedReplicas": 1}
    status = shown((*UP[:2], rolling, JOB), (*ALL_PODS, labelled(crowded, {names.LABEL_COMPONENT: "proxy"})))

    (said,) = (c for c in status.conditions if c.type == "ProxyReady")
    assert said.reason == "InsufficientCapacityForSurge"
    assert said.message.endswith("Make room on a node, or lower spec.proxy.resources.requests.")


SERVES = ("True", "requests are answered at http://qwen.ai.svc")
PLAIN_ABSENT = ("False", "no ready pod of prefill-decode that speaks plain HTTP")


@pytest.mark.parametrize(
    ("speaks", "tls", "available"),
    [("http", True, SERVES), ("https", True, SERVES), ("http", False, SERVES), ("https", False, PLAIN_ABSENT)],
)
def test_engines_that_the_proxy_cannot_talk_to_answer_nobody(
    speaks: str, tls: bool, available: tuple[str, str]
) -> None:
    port = {"spec": {"containers": [{"name": "engine", "ports": [{"name": speaks, "containerPort": 8000}]}]}}
    given = {"engine": {"image": "vllm:v0.33.0"} | ({"tls": {"secretName": "engines"}} if tls else {})}

    status = shown(pods=(PROXY, ENCODER, ANSWERER | port), **given)

    assert [(c.status, c.message) for c in status.conditions if c.type == "Available"] == [available]


def summary(status: Any) -> dict[str, str]:
    wanted = ("Available", "Ready", "Reconciling", "Stalled")
    return {c.type: f"{c.status} {c.reason}" for c in status.conditions if c.type in wanted}


def four(available: str, ready: str, reconciling: str, stalled: str = "False AsSpecified") -> dict[str, str]:
    return {"Available": available, "Ready": ready, "Reconciling": reconciling, "Stalled": stalled}


def test_the_whole_of_it() -> None:
    status = shown()
    assert summary(status) == four("True Serving", "True AllReady", "False AsSpecified")
    assert status.observed_generation == 3
    assert {c.observed_generation for c in status.conditions} == {3}
    assert (status.url, status.topology, status.role_summary) == ("http://qwen.ai.svc", "E|PD", "2E 1PD")
    assert status.roles == [
        RoleStatus(name="encode", desired=2, ready=2, updated=2, model_versions=["v1-a"]),
        RoleStatus(name="prefill-decode", desired=1, ready=1, updated=1, model_versions=["v1-a"]),
    ]
    assert status.encoder_cache == EncoderCacheStatus(claim="ec", phase="Bound", capacity="10Gi")
    assert [c.type for c in status.conditions] == [
        "Available", "Ready", "Reconciling", "Stalled", "StorageReady", "EncodeReady", "PrefillDecodeReady",
        "ProxyReady", "EncoderCacheHealthy", "UpdateAvailable",
    ]  # fmt: skip


NO_ENCODER_IMAGE = (deployment("qwen-encode", 2, 0), *UP[1:])
PULLING = engine(objects.waiting("ErrImagePull"), Role.ENCODE)
AT_ZERO = (deployment("qwen-encode", 0), deployment("qwen-prefilldecode", 0))
SHRINKING = {**deployment("qwen-encode", 2), "spec": {"replicas": 0}}
STARTING = "False Starting"
CASES: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("nothing made yet", {"children": (), "pods": ()}, four("False NotServing", STARTING, "True Starting")),
    ("encoders cannot pull", {"children": NO_ENCODER_IMAGE, "pods": (PROXY, ANSWERER, PULLING)},
     four("True Serving", "False EncodeImagePull", "True EncodeImagePull")),
    ("a hard reason before one that waits", {"children": (*NO_ENCODER_IMAGE, deployment("qwen-prefilldecode", 1, 0)),
     "pods": (PROXY, PULLING)}, four("False NotServing", "False EncodeImagePull", "True EncodeImagePull")),
    ("claim absent", {"claim": None}, four("True Serving", "False ClaimNotFound", "True ClaimNotFound")),
    ("not checked yet", {"children": UP[:3]}, four("True Serving", "False Checking", "True Checking")),
    ("no proxy pod", {"pods": (ANSWERER,)}, four("False NotServing", "True AllReady", "False AsSpecified")),
    ("only proxies of before the certificate went", {"pods": (proxy("https"), ENCODER, ANSWERER)},
     four("False NotServing", "True AllReady", "False AsSpecified")),
    ("suspended", {"children": (*AT_ZERO, *UP[2:]),
     "pods": (PROXY,), "suspend": True}, four("False Suspended", "True Suspended", "False AsSpecified")),
    ("suspended before a check", {"children": (*AT_ZERO, UP[2]), "pods": (PROXY,), "suspend": True},
     four("False Suspended", "True Suspended", "False AsSpecified")),
    ("suspending", {"pods": ALL_PODS, "suspend": True, "children": (SHRINKING, *UP[1:])},
     four("True Serving", "False RollingOut", "True RollingOut")),
    ("stalled", {"circumstances": Circumstances(stalled=Finding.true("NameTaken", "x"))},
     four("True Serving", "False NameTaken", "False NameTaken", "True NameTaken")),
    ("retrying", {"circumstances": Circumstances(retrying=Finding.true("Retrying", "x"))},
     four("True Serving", "False Retrying", "True Retrying")),
    ("paused", {"circumstances": Circumstances(left_alone=True)},
     four("True Serving", "False Paused", "True Paused")),
    ("update available", {"circumstances": Circumstances(outdated=(Role.ENCODE,))},
     four("True Serving", "True AllReady", "False AsSpecified")),
]  # fmt: skip


@pytest.mark.parametrize(("given", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_the_four_that_tools_read(given: dict[str, Any], expected: dict[str, str]) -> None:
    assert summary(shown(**given)) == expected


def test_messages_name_part_and_fix() -> None:
    status = shown(children=NO_ENCODER_IMAGE, pods=(PROXY, ANSWERER, PULLING))
    ready = next(c for c in status.conditions if c.type == "Ready")
    assert ready.message == (
        "encode: 0 of 2 pods are ready; pod qwen-encode-1 cannot pull image engine:1. Check the image's name and "
        "spec.imagePullSecrets."
    )
    update = shown(circumstances=Circumstances(outdated=(Role.ENCODE,))).conditions[-1]
    assert update.message.startswith("this version of the operator renders encode differently")


def test_an_aggregated_deployment_has_no_condition_of_encoders() -> None:
    status = shown(encode=None)
    assert status.role_summary == "1PD"
    assert "EncodeReady" not in [c.type for c in status.conditions]


def test_two_versions_while_one_rolls_out() -> None:
    pods = (PROXY, ENCODER, engine(objects.ready("e2"), Role.ENCODE, "v1-b"), ANSWERER)
    assert shown(pods=pods).roles[0].model_versions == ["v1-a", "v1-b"]


def test_names_of_parts() -> None:
    assert [field_of(role) for role in Role] == ["encode", "prefill", "decode", "prefillDecode"]
    assert part_reason(ConditionType.PREFILL_DECODE_READY, "OOMKilled") == "PrefillDecodeOOMKilled"
    assert part_reason(ConditionType.ENCODE_READY, "Starting") == "Starting"
    assert part_reason(ConditionType.STORAGE_READY, "NotWritable") == "NotWritable"
