"""Labels, selectors, names and owner references of children. Pure.

Selectors hold only labels that never change for a child; versions are labels, never selectors.
"""

from __future__ import annotations

from typing import Any, Final

from epd.api import names
from epd.api.types import EPDDeployment
from epd.topology.model_version import model_version
from epd.topology.pairing import pairing

ANNOTATION_RESTARTED_AT: Final = "epd.dev/restarted-at"
"""On pod templates: `spec.restartedAt`, so that a change of it restarts the pods."""
ANNOTATION_DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"

_APPLICATION: Final = "vllm"
"""`app.kubernetes.io/name` of everything that belongs to one deployed model."""

Labels = dict[str, str]


def labels(epd: EPDDeployment, component: str) -> Labels:
    """Return the labels of a child of one component: a role, or one of the `COMPONENT_` names."""
    return {
        names.LABEL_NAME: _APPLICATION,
        names.LABEL_INSTANCE: epd.metadata.name,
        names.LABEL_COMPONENT: str(component),
        names.LABEL_PART_OF: "epd",
        names.LABEL_MANAGED_BY: names.FIELD_MANAGER,
        names.LABEL_EPD: epd.metadata.name,
    }


def role_labels(epd: EPDDeployment, role: names.Role) -> Labels:
    """Return the labels of a role's Deployment and pods, versions included."""
    return labels(epd, role) | {
        names.LABEL_ROLE: str(role),
        names.LABEL_MODEL_VERSION: model_version(epd.spec),
        names.LABEL_PAIRING: pairing(epd),
    }


def role_selector(epd: EPDDeployment, role: names.Role) -> Labels:
    """Return what selects a role's pods."""
    return {names.LABEL_EPD: epd.metadata.name, names.LABEL_ROLE: str(role)}


def component_selector(epd: EPDDeployment, component: str) -> Labels:
    """Return what selects the pods of a component that is no role."""
    return {names.LABEL_EPD: epd.metadata.name, names.LABEL_COMPONENT: component}


def owner_reference(epd: EPDDeployment) -> dict[str, Any]:
    """Return the reference that makes a child go with its EPDDeployment."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": epd.metadata.name,
        "uid": epd.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def metadata(epd: EPDDeployment, name: str, child_labels: Labels, *, owned: bool = True) -> dict[str, Any]:
    """Return a child's metadata; not `owned` for what shall stay when the EPDDeployment goes."""
    plain: dict[str, Any] = {"name": name, "namespace": epd.metadata.namespace, "labels": child_labels}
    return plain | {"ownerReferences": [owner_reference(epd)]} if owned else plain
