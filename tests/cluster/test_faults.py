"""Faults of people's clusters are named in status with the fix, by a real scheduler and kubelet. No engine starts."""

from __future__ import annotations

import copy
import os
from typing import Any

import pytest

from cluster import Cluster
from cluster.deployed import Deployed

pytestmark = pytest.mark.node


def template(**spec: Any) -> dict[str, Any]:
    """`spec.encoderCache` with a claim template."""
    base = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"volume": {"volumeClaimTemplate": {"spec": {**base, **spec}}}}


CASES = {
    "missing StorageClass": (
        {"encoderCache": template(storageClassName="no-such-class")},
        "StorageReady",
        "StorageClassNotFound",
        ["no-such-class"],
    ),
    "class that cannot share": (
        {"encoderCache": template(storageClassName="epd-single-node")},
        "StorageReady",
        "AccessModeNotSupported",
        ["epd-single-node", "ReadWriteMany", "ReadWriteOnce"],
    ),
    "claim not found": (
        {"encoderCache": {"volume": {"persistentVolumeClaim": {"claimName": "absent"}}}},
        "StorageReady",
        "ClaimNotFound",
        ["absent", "namespace"],
    ),
    "missing Secret": (
        {"model": {"source": {"huggingFace": {"tokenSecretRef": {"name": "no-such-secret", "key": "token"}}}}},
        "EncodeReady",
        "SecretNotFound",
        ["no-such-secret"],
    ),
    "image that cannot be pulled": (
        {"engine": {"image": "localhost/no-such-image:v0.32.0"}},
        "EncodeReady",
        "ImagePull",
        ["localhost/no-such-image:v0.32.0"],
    ),
    "missing certificate": (
        {"suspend": True, "proxy": {"tls": {"secretName": "no-such-certificate"}}},
        "ProxyReady",
        "SecretNotFound",
        ["no-such-certificate", "Create"],
    ),
    "certificate without its key": (
        {"suspend": True, "proxy": {"tls": {"secretName": "half-a-certificate"}}},
        "ProxyReady",
        "SecretKeyMissing",
        ["half-a-certificate", "tls.key"],
    ),
    "missing API keys": (
        {"suspend": True, "proxy": {"auth": {"apiKeys": {"secretName": "no-such-tenants"}}}},
        "ProxyReady",
        "SecretNotFound",
        ["no-such-tenants", "Create"],
    ),
    "no free device": (
        {role: {"resources": {"limits": {"nvidia.com/gpu": 1}}} for role in ("encode", "prefillDecode")},
        "EncodeReady",
        "InsufficientDevices",
        ["nvidia.com/gpu"],
    ),
}


@pytest.fixture
def idle_manifest(demo_manifest: dict[str, Any], scratch: Deployed) -> dict[str, Any]:
    """The demo under a name to throw away, with engines that never start: storage and deletion don't need them."""
    manifest = copy.deepcopy(demo_manifest)
    manifest["metadata"]["name"] = scratch.name
    manifest["spec"]["engine"] |= {"image": "localhost/no-such-image:v0.32.0", "imagePullPolicy": "Never"}
    return manifest


def merged(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """JSON merge patch; members of a union replace each other."""
    result = copy.deepcopy(base)
    for key, value in change.items():
        union = key in {"source", "volume"}
        result[key] = merged(result.get(key, {}), value) if isinstance(value, dict) and not union else value
    return result


@pytest.fixture(scope="module", autouse=True)
def half_a_certificate(cluster: Cluster, namespace: str) -> None:
    """A Secret that was made by hand, and not with `kubectl create secret tls`."""
    metadata = {"name": "half-a-certificate", "namespace": namespace}
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"tls.crt": "x"}})


@pytest.mark.parametrize("case", list(CASES))
def test_is_named_in_status_with_the_fix(case: str, demo_manifest: dict[str, Any], scratch: Deployed) -> None:
    change, condition, reason, words = CASES[case]
    manifest = copy.deepcopy(demo_manifest)
    manifest["metadata"]["name"] = scratch.name
    manifest["spec"] = merged(manifest["spec"], change)
    scratch.apply(manifest)
    found = scratch.wait_condition(condition, reason)
    assert found["status"] == "False"
    for word in words:
        assert word in found["message"]
    ready = scratch.condition("Ready")
    assert ready["status"] == "False"
    assert reason in ready["reason"]


def test_an_unwritable_root_is_named_with_its_owner_and_mended_by_chown(
    cluster: Cluster, idle_manifest: dict[str, Any], scratch: Deployed
) -> None:
    idle_manifest["spec"]["encoderCache"] = template(storageClassName="epd-root-only")
    scratch.apply(idle_manifest)
    found = scratch.wait_condition("StorageReady", "NotWritable")
    assert found["status"] == "False"
    for word in ("uid 1000", "0755", "chown"):
        assert word in found["message"]
    os.chown(cluster.claim_folder(scratch.namespace, f"{scratch.name}-encoder-cache"), 1000, 1000)
    scratch.wait_condition(
        "StorageReady", "Bound", seconds=180
    )  # the check comes back by itself, with the kubelet's back-off


def test_deletion_leaves_nothing_behind(idle_manifest: dict[str, Any], scratch: Deployed) -> None:
    scratch.apply(idle_manifest)
    for child in (f"deployment/{scratch.name}-proxy", f"pvc/{scratch.name}-encoder-cache"):
        scratch.run("wait", "--for=create", child, "--timeout=60s")
    kinds = "deployments,replicasets,pods,services,pvc,jobs,serviceaccounts,roles,rolebindings,controllerrevisions"
    assert scratch.run("get", kinds, "-l", f"epd.dev/name={scratch.name}", "-o", "name").split()
    scratch.run("delete", "epd", scratch.name, "--wait", "--cascade=foreground", "--timeout=120s")
    scratch.run("wait", "--for=delete", "pods", "-l", f"epd.dev/name={scratch.name}", "--timeout=120s")
    scratch.run("wait", "--for=delete", f"pvc/{scratch.name}-encoder-cache", "--timeout=60s")
    assert scratch.run("get", kinds, "-l", f"epd.dev/name={scratch.name}", "-o", "name").split() == []


def test_retain_keeps_the_claim(idle_manifest: dict[str, Any], scratch: Deployed) -> None:
    idle_manifest["spec"]["encoderCache"]["reclaimPolicy"] = "Retain"
    scratch.apply(idle_manifest)
    scratch.run("wait", "--for=create", f"pvc/{scratch.name}-encoder-cache", "--timeout=60s")
    scratch.run("delete", "epd", scratch.name, "--wait", "--cascade=foreground", "--timeout=120s")
    assert "Bound" in scratch.run("get", "pvc", f"{scratch.name}-encoder-cache")
