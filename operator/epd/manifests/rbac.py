"""Accounts and rights: the proxy may watch the pods of its namespace, engines and preflight may do nothing. Pure."""

from __future__ import annotations

from typing import Final

from epd.api import names
from epd.api.types import EPDDeployment
from epd.manifests.context import Manifest
from epd.manifests.labels import Labels, labels, metadata

_RBAC: Final = "rbac.authorization.k8s.io"


def _service_account(epd: EPDDeployment, name: str, account_labels: Labels) -> Manifest:
    """No token by itself: the proxy's pods ask for theirs, engines run code from model repositories."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(epd, name, account_labels),
        "automountServiceAccountToken": False,
    }


def access(epd: EPDDeployment) -> tuple[Manifest, ...]:
    """Return the accounts of engines and proxy, and the proxy's rights."""
    proxy, proxy_labels = names.proxy(epd.metadata.name), labels(epd, names.COMPONENT_PROXY)
    engine_account = names.engine_service_account(epd.metadata.name)
    return (
        _service_account(epd, engine_account, labels(epd, "engine")),
        _service_account(epd, proxy, proxy_labels),
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "Role",
            "metadata": metadata(epd, proxy, proxy_labels),
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}],
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata(epd, proxy, proxy_labels),
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": proxy},
            "subjects": [{"kind": "ServiceAccount", "name": proxy, "namespace": epd.metadata.namespace}],
        },
    )
