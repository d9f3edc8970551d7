"""The Job that checks whether the engines' user can work on the claim. Pure. What it runs is `epd.preflight`."""

from __future__ import annotations

from typing import Any, Final

from epd.api import names
from epd.api.types import EPDDeployment
from epd.manifests import pod
from epd.manifests.context import Context, Manifest
from epd.manifests.labels import labels, metadata
from epd.topology.canonical import digest
from epd.topology.storage import encoder_cache_claim, single_node

_HASH_LENGTH: Final = 7
"""A Job's name is a label of its pod: 45 characters of ours, `-preflight-` and this are 63."""

_BACKOFF_LIMIT: Final = 2_000_000
"""The check is repeated until the user has repaired the claim; the kubelet's backoff (up to 5 min) is the pace."""

_SCHEDULING_FIELDS: Final = ("nodeSelector", "tolerations", "runtimeClassName", "schedulerName", "priorityClassName")
"""Of the engines' podTemplate: where and how the engines' node takes pods."""


def _scheduling(epd: EPDDeployment) -> dict[str, Any]:
    """What lets the check run where engines run: the union of tolerations, and what all roles share."""
    shared = epd.spec.engine.pod_template.get("spec") or {}
    fields = {field: shared[field] for field in _SCHEDULING_FIELDS if shared.get(field)}
    tolerations = pod.tolerations(epd.spec)
    return fields | {"tolerations": tolerations} if tolerations else fields


def preflight_inputs(epd: EPDDeployment) -> dict[str, Any]:
    """Return what the check depends on: another value is another Job. The operator's image is no part of it."""
    claim = encoder_cache_claim(epd)
    return {
        "claim": claim and [claim.claim_name, claim.sub_path],
        "securityContext": epd.spec.security_context,
        "scheduling": _scheduling(epd),
        "singleNode": single_node(epd.spec),
        "imagePullSecrets": [secret.name for secret in epd.spec.image_pull_secrets],
    }


def preflight_name(epd: EPDDeployment) -> str:
    """Return the name of the Job for the claim and user that the spec has now."""
    return names.preflight(epd.metadata.name, digest(preflight_inputs(epd), length=_HASH_LENGTH))


def _pod_spec(epd: EPDDeployment, context: Context) -> dict[str, Any]:
    volumes, mounts = pod.encoder_cache(epd)
    pull_policy = context.operator_image_pull_policy
    container = {
        "name": names.PREFLIGHT_CONTAINER,
        "image": context.operator_image,
        **({"imagePullPolicy": pull_policy} if pull_policy else {}),
        "command": ["python", "-m", "epd.preflight", names.ENCODER_CACHE_PATH],
        # One interpreter that makes five system calls; quotas refuse pods without requests.
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": pod.RESTRICTED_CONTAINER | {"readOnlyRootFilesystem": True},
        "terminationMessagePolicy": "File",
        "volumeMounts": mounts,
    }
    pod_spec = {
        "restartPolicy": "OnFailure",
        "serviceAccountName": names.engine_service_account(epd.metadata.name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **pod.pull_secrets(epd.spec),
        "securityContext": pod.engine_security_context(epd.spec),
        **_scheduling(epd),
        "containers": [container],
        "volumes": volumes,
    }
    return pod.with_pod_affinity(pod_spec, [pod.same_node(epd)]) if single_node(epd.spec) else pod_spec


def preflight_job(epd: EPDDeployment, context: Context) -> tuple[Manifest, ...]:
    """Return the Job; nothing when there is no claim to check.

    It may restart itself without end and stays when it is done: its last message is the answer.
    """
    if encoder_cache_claim(epd) is None:
        return ()
    own_labels = labels(epd, names.COMPONENT_PREFLIGHT)
    return (
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata(epd, preflight_name(epd), own_labels),
            "spec": {
                "backoffLimit": _BACKOFF_LIMIT,
                "completions": 1,
                "parallelism": 1,
                "template": {"metadata": {"labels": own_labels}, "spec": _pod_spec(epd, context)},
            },
        },
    )
