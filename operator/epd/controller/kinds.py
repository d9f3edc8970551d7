"""The kinds of object that the operator handles, and where the API server serves them.

Data and two accessors of metadata; knows nothing of what the objects are for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from epd.api import names

Manifest = dict[str, Any]
"""A Kubernetes object as JSON: dicts are used at this boundary only."""


@dataclass(frozen=True)
class Kind:
    """One namespaced resource of the API server."""

    group: str
    version: str
    kind: str
    plural: str

    @property
    def api_version(self) -> str:
        """`apiVersion` of manifests."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """The URL path of a collection (all namespaces when `namespace` is empty), an object, or its subresource."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        parts += ["namespaces", namespace] if namespace else []
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/" + "/".join(parts)


EPD: Final = Kind(names.GROUP, names.VERSION, names.KIND, names.PLURAL)
CONFIG_MAP: Final = Kind("", "v1", "ConfigMap", "configmaps")
CONTROLLER_REVISION: Final = Kind("apps", "v1", "ControllerRevision", "controllerrevisions")
DEPLOYMENT: Final = Kind("apps", "v1", "Deployment", "deployments")
EVENT: Final = Kind("", "v1", "Event", "events")
JOB: Final = Kind("batch", "v1", "Job", "jobs")
PERSISTENT_VOLUME_CLAIM: Final = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
POD: Final = Kind("", "v1", "Pod", "pods")
REPLICA_SET: Final = Kind("apps", "v1", "ReplicaSet", "replicasets")
ROLE: Final = Kind("rbac.authorization.k8s.io", "v1", "Role", "roles")
ROLE_BINDING: Final = Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
SERVICE: Final = Kind("", "v1", "Service", "services")
SERVICE_ACCOUNT: Final = Kind("", "v1", "ServiceAccount", "serviceaccounts")

CHILDREN: Final = (
    PERSISTENT_VOLUME_CLAIM,
    SERVICE_ACCOUNT,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    CONFIG_MAP,
    DEPLOYMENT,
    JOB,
    CONTROLLER_REVISION,
)
"""What an EPDDeployment may own: listed at each reconcile, pruned when no longer wanted, watched for drift."""

WATCHED: Final = (EPD, *CHILDREN, POD)

_BY_NAME: Final = {(k.api_version, k.kind): k for k in (*WATCHED, EVENT, REPLICA_SET)}


def kind_of(manifest: Manifest) -> Kind:
    """The kind of a manifest. KeyError: a kind that the operator does not handle."""
    return _BY_NAME[manifest["apiVersion"], manifest["kind"]]


def name_of(manifest: Manifest) -> str:
    """`metadata.name`."""
    return str(manifest["metadata"]["name"])


def uid_of(manifest: Manifest) -> str:
    """`metadata.uid`, empty before the API server has seen the object."""
    return str(manifest["metadata"].get("uid", ""))


def controlled_by(manifest: Manifest, owner_uid: str) -> bool:
    """Whether the owner with this UID is the controller of the object."""
    owners = manifest["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == owner_uid and owner.get("controller") for owner in owners)
