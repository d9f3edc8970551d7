"""What the operator may do, as data: the chart's RBAC and the simulated cluster are held against it.

Nothing here grants anything; the chart does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from epd.controller import kinds
from epd.controller.kinds import Kind


@dataclass(frozen=True)
class Permission:
    """Verbs on one resource (or subresource, as in `epddeployments/status`), as an RBAC rule has them."""

    group: str
    resource: str
    verbs: tuple[str, ...]


def _children(kind: Kind) -> Permission:
    # `patch` is the verb of server-side apply; the API server asks for `create` too when the object is new.
    return Permission(kind.group, kind.plural, ("create", "delete", "get", "list", "patch", "watch"))


PERMISSIONS: Final = (
    # `patch` is for our finalizer alone: the spec is the user's.
    Permission(kinds.EPD.group, kinds.EPD.plural, ("get", "list", "patch", "watch")),
    Permission(kinds.EPD.group, f"{kinds.EPD.plural}/status", ("patch",)),
    # The admission plugin OwnerReferencesPermissionEnforcement (on by default on OpenShift) asks this of whoever
    # sets blockOwnerDeletion; the code never calls it.
    Permission(kinds.EPD.group, f"{kinds.EPD.plural}/finalizers", ("update",)),
    *(_children(kind) for kind in kinds.CHILDREN),
    # `get` is not called: the proxy's Role has it, and nobody may grant what they do not hold.
    Permission(kinds.POD.group, kinds.POD.plural, ("get", "list", "watch")),
    # Which connector's source may still start a pod. `get` is the collector's, as above.
    Permission(kinds.REPLICA_SET.group, kinds.REPLICA_SET.plural, ("get", "list")),
    Permission(kinds.EVENT.group, kinds.EVENT.plural, ("create", "get", "list", "patch")),
)


def allowed(kind: Kind, verb: str, subresource: str = "") -> bool:
    """Whether the table has this verb."""
    resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
    return any(p.group == kind.group and p.resource == resource and verb in p.verbs for p in PERMISSIONS)
