"""Fills a claim through a pod, on clusters whose volumes this machine can't reach."""

from __future__ import annotations

import base64
import io
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import images

if TYPE_CHECKING:
    from .client import Cluster

UNPACK = """
import base64, io, sys, tarfile
tarfile.open(fileobj=io.BytesIO(base64.b64decode(sys.stdin.read()))).extractall("/to")
"""


def fill(cluster: Cluster, namespace: str, *, name: str, source: Path) -> None:
    """Makes the claim `name` of the default storage class, ReadWriteMany, and copies the files of `source` into it."""
    metadata = {"name": name, "namespace": namespace}
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    cluster.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim})
    pod = f"{name}-filling"
    cluster.apply(_pod(namespace, pod, claim=name))
    try:
        cluster.kubectl("wait", f"pod/{pod}", "-n", namespace, "--for=condition=Ready", "--timeout=180s")
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            tar.add(source, arcname=".")
        text = base64.b64encode(packed.getvalue()).decode()
        cluster.kubectl("exec", "-i", pod, "-n", namespace, "--", "python3", "-c", UNPACK, stdin=text)
    finally:
        cluster.kubectl("delete", "pod", pod, "-n", namespace, "--grace-period=1")


def _pod(namespace: str, name: str, *, claim: str) -> dict[str, Any]:
    container = {
        "name": "filling",
        "image": images.OPERATOR,
        "command": ["python3", "-c", "import time; time.sleep(600)"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "to", "mountPath": "/to"}],
    }
    spec = {
        "restartPolicy": "Never",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "fsGroup": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "to", "persistentVolumeClaim": {"claimName": claim}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}
