"""The collector's account and rights: it may read what says which cache versions live, and write nothing. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from epd.api import names
from epd.api.types import EPDDeployment
from epd.manifests.context import Manifest
from epd.manifests.labels import collector_metadata
from epd.topology.storage import encoder_cache_claim

_RBAC: Final = "rbac.authorization.k8s.io"
_READ: Final = ("get", "list")


def _rules(claim: str) -> list[dict[str, Any]]:
    return [
        {"apiGroups": [""], "resources": ["pods"], "verbs": list(_READ)},
        {"apiGroups": ["apps"], "resources": ["deployments", "replicasets"], "verbs": list(_READ)},
        {"apiGroups": [names.GROUP], "resources": [names.PLURAL], "verbs": list(_READ)},
        {
            "apiGroups": [""],
            "resources": ["persistentvolumeclaims"],
            "resourceNames": [claim],
            "verbs": ["get"],
        },
    ]


def collector_access(users: Sequence[EPDDeployment]) -> tuple[Manifest, ...]:
    """Return ServiceAccount, Role and RoleBinding of the collector of `users`, who share one directory of a claim."""
    meta = collector_metadata(users)
    claim = encoder_cache_claim(users[0])
    return (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta, "automountServiceAccountToken": False},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "Role",
            "metadata": meta,
            "rules": _rules(claim.claim_name if claim else ""),
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": meta["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": meta["name"], "namespace": meta["namespace"]}],
        },
    )
