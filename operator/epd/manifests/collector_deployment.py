"""The collector's Deployment, one for all EPDDeployments that share a directory of a claim. Pure.

Its flags are those of `epd.collector.main`; the policy it reads from the API server itself, so that a change of it
restarts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from epd.api import names
from epd.api.quantity import quantity_value
from epd.api.types import EncoderCacheSpec, EPDDeployment, GarbageCollection, Resources
from epd.manifests import pod
from epd.manifests.context import Context, Manifest
from epd.manifests.labels import (
    ANNOTATION_DEFAULT_CONTAINER,
    by_age,
    collector_annotations,
    collector_labels,
    collector_metadata,
    collector_selector,
)
from epd.manifests.merge import merge_pod_template
from epd.topology.storage import encoder_cache_claim, single_node

_PORT_NAME: Final = "http"
_IDS: Final = ("runAsUser", "runAsGroup", "fsGroup")
_SHARED_ACCESS: Final = "ReadWriteMany"

_DISK_PRESSURE: Final = {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists", "effect": "NoSchedule"}
"""A full node is where deleting is wanted most; the claim may lie on that node's own disk."""

_GRACE_SECONDS: Final = 30
"""A pass ends between two entries; what is left in the trash waits for the next start."""


def _collection(user: EPDDeployment) -> GarbageCollection:
    return (user.spec.encoder_cache or EncoderCacheSpec()).garbage_collection


def collector_disagreement(users: Sequence[EPDDeployment]) -> str | None:
    """Return who asks for another security context than the oldest user, whose counts; None when all agree."""
    oldest, *others = by_age(users)
    differing = [other.metadata.name for other in others if other.spec.security_context != oldest.spec.security_context]
    if not differing:
        return None
    return (
        f"{', '.join(differing)} and {oldest.metadata.name} share the claim with different spec.securityContext; the "
        f"collector runs with that of {oldest.metadata.name}, the oldest, and may not be able to delete what the "
        "others write. Make it the same in all."
    )


def _greatest(values: Iterable[str | int]) -> str:
    return str(max(values, key=quantity_value))


def _resources(users: Sequence[EPDDeployment]) -> Resources:
    """The greatest of each. A limit that one user leaves out is left out: it would end what that user pays for."""
    given = [_collection(user).resources for user in users]
    requests = {name for each in given for name in each.requests}
    limits = set.intersection(*(set(each.limits) for each in given))
    return Resources(
        requests={name: _greatest(r.requests[name] for r in given if name in r.requests) for name in requests},
        limits={name: _greatest(r.limits[name] for r in given) for name in limits},
    )


def _container(users: Sequence[EPDDeployment], context: Context) -> dict[str, Any]:
    claim = encoder_cache_claim(users[0])
    pull_policy = context.operator_image_pull_policy
    args = [f"--claim={claim.claim_name}", f"--root={names.ENCODER_CACHE_PATH}"] if claim else []
    if claim and claim.sub_path:
        args.append(f"--sub-path={claim.sub_path}")
    probe = {"periodSeconds": 10, "timeoutSeconds": 5}
    return {
        "name": names.COLLECTOR_CONTAINER,
        "image": context.operator_image,
        **({"imagePullPolicy": pull_policy} if pull_policy else {}),
        "command": ["epd-collector"],
        "args": args,
        "ports": [{"name": _PORT_NAME, "containerPort": names.COLLECTOR_PORT, "protocol": "TCP"}],
        **pod.resources(_resources(users)),
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": _PORT_NAME}} | probe,
        # Two minutes: a hanging file server is no reason to restart, and a restart would not mend it.
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": _PORT_NAME}} | probe | {"failureThreshold": 12},
        "securityContext": pod.RESTRICTED_CONTAINER | {"readOnlyRootFilesystem": True},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": pod.encoder_cache(users[0])[1],
    }


def _tolerations(users: Sequence[EPDDeployment]) -> list[Any]:
    given = pod.tolerations(*(user.spec for user in users))
    return given if _DISK_PRESSURE in given else [*given, _DISK_PRESSURE]


def _beside_engines(users: Sequence[EPDDeployment]) -> dict[str, Any]:
    """The affinity term that holds the collector where the engines have mounted the claim.

    Unlike theirs it does not match itself: with no engine up the collector waits, or it would draw the volume to a
    node where engines cannot run.
    """
    return {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {
            "matchExpressions": [
                {
                    "key": names.LABEL_EPD,
                    "operator": "In",
                    "values": sorted(user.metadata.name for user in users),
                },
                {"key": names.LABEL_ROLE, "operator": "Exists"},
            ]
        },
    }


def _pod_template(
    users: Sequence[EPDDeployment], context: Context, access_modes: Sequence[str], node: str
) -> dict[str, Any]:
    oldest_spec = users[0].spec
    rendered = {
        "metadata": {
            "annotations": {ANNOTATION_DEFAULT_CONTAINER: names.COLLECTOR_CONTAINER} | collector_annotations(users[0]),
            "labels": collector_labels(users[0]),
        },
        "spec": {
            "serviceAccountName": collector_metadata(users)["name"],
            "automountServiceAccountToken": True,
            "enableServiceLinks": False,
            **pod.pull_secrets(*(user.spec for user in users)),
            "securityContext": pod.engine_security_context(oldest_spec),
            "terminationGracePeriodSeconds": _GRACE_SECONDS,
            "tolerations": _tolerations(users),
            "containers": [_container(users, context)],
            "volumes": pod.encoder_cache(users[0])[0],
        },
    }
    merged = merge_pod_template(rendered, *(_collection(user).pod_template for user in reversed(users)))
    merged["metadata"]["labels"] |= collector_labels(users[0])
    ids = {key: value for key, value in oldest_spec.security_context.items() if key in _IDS}
    merged["spec"]["securityContext"] = (merged["spec"].get("securityContext") or {}) | ids
    if (access_modes and _SHARED_ACCESS not in access_modes) or any(single_node(user.spec) for user in users):
        merged["spec"] = pod.with_pod_affinity(merged["spec"], [_beside_engines(users)])
        merged["metadata"]["annotations"] |= {names.ANNOTATION_NODE: node} if node else {}
    return merged


def collector_deployment(
    users: Sequence[EPDDeployment], context: Context, *, access_modes: Sequence[str] = (), node: str = ""
) -> Manifest:
    """Return the Deployment of the collector of `users`, who share one directory of a claim.

    Args:
        users: One at least. Where their wishes contradict, the oldest object's count.
        context: What the operator knows of itself.
        access_modes: Those of the claim as the cluster has it; of a claim that was brought nothing else tells that it
            can be mounted on one node only.
        node: Where the engines are, if that can be one node only; empty when not known.
    """
    users = by_age(users)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": collector_metadata(users),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": collector_selector(users[0])},
            "strategy": {"type": "Recreate"},  # two at once are safe, but a claim of one node cannot have them
            "revisionHistoryLimit": 3,
            "template": _pod_template(users, context, access_modes, node),
        },
    }
