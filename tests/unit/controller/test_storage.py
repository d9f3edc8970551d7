from __future__ import annotations

import json
from typing import Any

import pytest

from epd.api.types import EPDDeployment
from epd.controller.conditions import Finding
from epd.controller.storage import Storage, claim_name, finding, report
from unit.controller import objects

TEMPLATE = {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteMany"]}}}
BROUGHT = {"persistentVolumeClaim": {"claimName": "ec"}}
BAD = {"ok": False, "step": "mkdir", "errno": "EACCES", "uid": 1000, "gid": 1000, "owner": 0, "group": 0,
       "mode": "0755", "fix": "chown 1000 it."}  # fmt: skip


def epd(volume: dict[str, Any] | None) -> EPDDeployment:
    cache = {"encoderCache": {"volume": volume}} if volume else {}
    return EPDDeployment.model_validate(
        {
            "metadata": {"name": "qwen", "namespace": "ai"},
            "spec": {"model": {"name": "m"}, "engine": {"image": "i"}, "prefillDecode": {}, **cache},
        }
    )


def claim(
    phase: str = "Bound", *, modes: tuple[str, ...] = ("ReadWriteMany",), class_name: str | None = "nfs", node: str = ""
) -> dict[str, Any]:
    spec = {"accessModes": list(modes), **({"storageClassName": class_name} if class_name is not None else {})}
    annotations = {"volume.kubernetes.io/selected-node": node} if node else {}
    status = {"phase": phase, **({"capacity": {"storage": "10Gi"}} if phase == "Bound" else {})}
    return {"metadata": {"name": "ec", "annotations": annotations}, "spec": spec, "status": status}


def job(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "check"}, "status": status}


def said(result: Any, *, state: str = "lastState") -> dict[str, Any]:
    message = result if isinstance(result, str) else json.dumps(result)
    return objects.pod(containerStatuses=[{"name": "preflight", state: {"terminated": {"message": message}}}])


CASES: list[tuple[str, dict[str, Any] | None, Storage, Finding]] = [
    ("no volume", None, Storage(claim=None),
     Finding("True", "NoStorage", "this deployment keeps its encoder cache on no volume")),
    ("brought claim absent", BROUGHT, Storage(claim=None),
     Finding("False", "ClaimNotFound", "PersistentVolumeClaim ai/ec not found; create it there: claims cannot be used "
             "from another namespace")),
    ("claim being made", TEMPLATE, Storage(claim=None),
     Finding("Unknown", "Pending", "PersistentVolumeClaim ai/qwen-encoder-cache is being made")),
    ("one pod only", BROUGHT, Storage(claim=claim(modes=("ReadWriteOncePod",))),
     Finding("False", "AccessModeNotSupported", "claim ec has access mode ReadWriteOncePod, but several pods share it. "
             "Access modes of a claim cannot be changed: delete the claim and ask for ReadWriteMany, or for "
             "ReadWriteOnce to run all pods on one node.")),
    ("read only", BROUGHT, Storage(claim=claim(modes=("ReadOnlyMany",))),
     Finding("False", "AccessModeNotSupported", "claim ec has access mode ReadOnlyMany, but encoders write to it. "
             "Access modes of a claim cannot be changed: delete the claim and ask for ReadWriteMany, or for "
             "ReadWriteOnce to run all pods on one node.")),
    ("lost", BROUGHT, Storage(claim=claim("Lost")),
     Finding("False", "ClaimPending", "claim ec has lost its PersistentVolume; restore or replace it")),
    ("pending without words", BROUGHT, Storage(claim=claim("Pending")),
     Finding("Unknown", "Pending", "claim ec is not Bound yet")),
    ("first consumer", BROUGHT,
     Storage(claim=claim("Pending"), claim_events=(objects.event("WaitForFirstConsumer", "waiting", type_="Normal"),)),
     Finding("Unknown", "WaitingForFirstConsumer", "claim ec is bound as soon as its first pod has a node")),
    ("no such class", BROUGHT,
     Storage(claim=claim("Pending", class_name="fast"), claim_events=(
         objects.event("ProvisioningFailed", 'storageclass.storage.k8s.io "fast" not found'),)),
     Finding("False", "StorageClassNotFound", 'claim ec names StorageClass "fast", which does not exist. Create it, or '
             "use one that kubectl get storageclass lists. A claim keeps its class and access modes: create it anew, "
             "and with it the EPDDeployment whose template made it.")),
    ("no default class", BROUGHT,
     Storage(claim=claim("Pending", class_name=None), claim_events=(objects.event(
         "FailedBinding", "no persistent volumes available for this claim and no storage class is set",
         type_="Normal"),)),
     Finding("False", "NoDefaultStorageClass", "claim ec names no StorageClass and the cluster has no default one. Set "
             "storageClassName.")),
    ("class cannot share", BROUGHT,
     Storage(claim=claim("Pending", class_name="standard"), claim_events=(
         objects.event("ProvisioningFailed", "NodePath only supports ReadWriteOnce access mode", at="1"),
         objects.event("ExternalProvisioning", "waiting for the provisioner", type_="Normal", at="2"))),
     Finding("False", "AccessModeNotSupported", 'StorageClass "standard" did not provision ReadWriteMany for claim ec: '
             '"NodePath only supports ReadWriteOnce access mode". Use a class for shared volumes (NFS, CephFS, EFS, '
             "Filestore), or accessModes: [ReadWriteOnce] to run all pods on one node. A claim keeps its class and "
             "access modes: create it anew, and with it the EPDDeployment whose template made it.")),
    ("provisioner's words", BROUGHT,
     Storage(claim=claim("Pending"), claim_events=(objects.event("ProvisioningFailed", "quota of the array"),)),
     Finding("False", "ClaimPending", 'claim ec (ReadWriteMany, class nfs) is Pending: "quota of the array"')),
    ("not checked", BROUGHT, Storage(claim=claim()),
     Finding("Unknown", "Checking", "claim ec is Bound; whether it is writable is checked once an engine pod has a "
             "node")),
    ("being checked", BROUGHT, Storage(claim=claim(), preflight=job()),
     Finding("Unknown", "Checking", "claim ec is Bound; Job check checks whether it is writable")),
    ("not writable", BROUGHT, Storage(claim=claim(), preflight=job(), preflight_pods=(said(BAD),)),
     Finding("False", "NotWritable", "uid 1000 gid 1000 cannot mkdir in ai/ec: EACCES (its root has mode 0755, owner "
             "0:0). chown 1000 it.")),
    ("check cannot run", BROUGHT,
     Storage(claim=claim(), preflight=job(), preflight_pods=(objects.waiting("ErrImagePull", "denied"),)),
     Finding("False", "ImagePull", "claim ec could not be checked: pod qwen-encode-1 cannot pull image engine:1: "
             "denied. Check the image's name and spec.imagePullSecrets.")),
    ("usable", BROUGHT, Storage(claim=claim(), preflight=job(succeeded=1)),
     Finding("True", "Bound", "claim ec is Bound (10Gi) and writable")),
    ("usable with lacks", BROUGHT,
     Storage(claim=claim(), preflight=job(succeeded=1), preflight_pods=(
         said({"ok": True, "lacks": ["link", "moonlight"]}),)),
     Finding("True", "ReducedGuarantees", "claim ec is Bound (10Gi) and writable, but it has no hard links: an entry "
             "larger than the engines' shared memory is a miss each time; it lacks moonlight")),
    ("usable on one node", BROUGHT,
     Storage(claim=claim(modes=("ReadWriteOnce",), node="n1"), preflight=job(succeeded=1)),
     Finding("True", "SingleNode", "claim ec is Bound (10Gi) and writable; with ReadWriteOnce all pods that mount it "
             "run on node n1")),
]  # fmt: skip


@pytest.mark.parametrize(("volume", "storage", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_finding(volume: dict[str, Any] | None, storage: Storage, expected: Finding) -> None:
    assert finding(epd(volume), storage) == expected


def test_claim_name() -> None:
    assert [claim_name(epd(v)) for v in (None, TEMPLATE, BROUGHT)] == [None, "qwen-encoder-cache", "ec"]


def test_the_newest_report_counts_and_foreign_words_do_not() -> None:
    assert report([said("Traceback"), said({"ok": True}, state="state")]) == {"ok": True}
    assert report([said("[1]")]) is None
    assert report([]) is None
