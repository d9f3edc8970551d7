"""Parts that pods of several children share: security, spreading, secrets, probes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from epd.api import names
from epd.api.types import EPDDeployment, Resources, Spec
from epd.topology.roles import roles_of
from epd.topology.storage import encoder_cache_claim

PRESTOP_SECONDS: Final = 5
"""Longer than the delay with which proxies and kube-proxy see that a pod is going, so that nobody still sends."""
KILL_MARGIN_SECONDS: Final = 10
"""What a process may take to exit after it has drained, before the kubelet kills it."""
MIN_READY_SECONDS: Final = 5
"""Before the next pod goes, the proxies have seen the new one."""

RESTRICTED_CONTAINER: Final[dict[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
"""What the restricted Pod Security Standard asks of a container; the rest stands on the pod."""


def engine_security_context(spec: Spec) -> dict[str, Any]:
    """Return the pod's security context for everything that touches the claim: one user for all of it."""
    return {"seccompProfile": {"type": "RuntimeDefault"}} | spec.security_context


def graceful_stop(drain_seconds: int) -> tuple[dict[str, Any], int]:
    """Return the container's `lifecycle` and the pod's `terminationGracePeriodSeconds` (native sleep: KEP-3960)."""
    lifecycle = {"preStop": {"sleep": {"seconds": PRESTOP_SECONDS}}}
    return lifecycle, PRESTOP_SECONDS + drain_seconds + KILL_MARGIN_SECONDS


def pull_secrets(*specs: Spec) -> dict[str, Any]:
    """Return `imagePullSecrets` of a pod of one spec or several; nothing when there are none."""
    found = dict.fromkeys(secret.name for spec in specs for secret in spec.image_pull_secrets)
    return {"imagePullSecrets": [{"name": name} for name in found]} if found else {}


def tolerations(*specs: Spec) -> list[Any]:
    """Return the union of what the engines of one spec or several tolerate, in the order given."""
    found: list[Any] = []
    for spec in specs:
        templates = [spec.engine.pod_template, *(role_spec.pod_template for _, role_spec in roles_of(spec))]
        for toleration in (each for t in templates for each in (t.get("spec") or {}).get("tolerations") or []):
            if toleration not in found:
                found.append(toleration)
    return found


def resources(given: Resources) -> dict[str, Any]:
    """Return a container's `resources`; nothing when none are given."""
    plain = {"limits": given.limits, "requests": given.requests}
    found = {kind: {name: str(value) for name, value in sorted(of.items())} for kind, of in plain.items() if of}
    return {"resources": found} if found else {}


def claim_volume(name: str, claim_name: str) -> dict[str, Any]:
    """Return a volume of a claim."""
    return {"name": name, "persistentVolumeClaim": {"claimName": claim_name}}


def secret_volume(name: str, secret_name: str, *, keys: Iterable[str] = ()) -> dict[str, Any]:
    """Return a volume of a Secret: of some of its keys, which it must have then, or of all that it has."""
    items = [{"key": key, "path": key} for key in keys]
    return {"name": name, "secret": {"secretName": secret_name} | ({"items": items} if items else {})}


def mount(name: str, path: str, *, sub_path: str = "", read_only: bool = False) -> dict[str, Any]:
    """Return a volume mount."""
    plain: dict[str, Any] = {"name": name, "mountPath": path}
    if sub_path:
        plain["subPath"] = sub_path
    return plain | {"readOnly": True} if read_only else plain


def encoder_cache(epd: EPDDeployment) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return volumes and mounts of the encoder cache.

    Writable in every role: up to 0.32 a look-up makes the entry's directory, and in 0.33 a load still does
    (`example_connector.py`); on a read-only mount a miss would kill the engine.
    """
    if (claim := encoder_cache_claim(epd)) is None:
        return [], []
    volume = claim_volume(names.ENCODER_CACHE_VOLUME, claim.claim_name)
    return [volume], [mount(names.ENCODER_CACHE_VOLUME, names.ENCODER_CACHE_PATH, sub_path=claim.sub_path)]


def same_node(epd: EPDDeployment) -> dict[str, Any]:
    """Return the affinity term that holds everything that mounts the claim on one node.

    The proxy does not mount it and is left out. The first pod, which finds no other, is let through by the scheduler
    because it matches its own term.
    """
    return {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {
            "matchLabels": {names.LABEL_EPD: epd.metadata.name},
            "matchExpressions": [
                {"key": names.LABEL_COMPONENT, "operator": "NotIn", "values": [names.COMPONENT_PROXY]}
            ],
        },
    }


def with_pod_affinity(pod_spec: dict[str, Any], terms: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the pod spec with required pod affinity terms added to those it has."""
    affinity = dict(pod_spec.get("affinity") or {})
    pod_affinity = dict(affinity.get("podAffinity") or {})
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    pod_affinity[key] = [*(pod_affinity.get(key) or []), *terms]
    return pod_spec | {"affinity": affinity | {"podAffinity": pod_affinity}}
