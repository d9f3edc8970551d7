"""Labels, selectors, names and owner references of children. Pure.

Selectors hold only labels that never change for a child; versions are labels, never selectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from epd.api import names
from epd.api.types import EPDDeployment
from epd.topology.model_version import model_version
from epd.topology.pairing import pairing
from epd.topology.storage import encoder_cache_claim

ANNOTATION_RESTARTED_AT: Final = "epd.dev/restarted-at"
"""On pod templates: `spec.restartedAt`, so that a change of it restarts the pods."""
ANNOTATION_DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"

_APPLICATION: Final = "vllm"
"""`app.kubernetes.io/name` of everything that belongs to one deployed model."""

Labels = dict[str, str]


def _common_labels(instance: str, component: str) -> Labels:
    return {
        names.LABEL_NAME: _APPLICATION,
        names.LABEL_INSTANCE: instance,
        names.LABEL_COMPONENT: component,
        names.LABEL_PART_OF: "epd",
        names.LABEL_MANAGED_BY: names.FIELD_MANAGER,
    }


def labels(epd: EPDDeployment, component: str) -> Labels:
    """Return the labels of a child of one component: a role, or one of the `COMPONENT_` names."""
    return _common_labels(epd.metadata.name, str(component)) | {names.LABEL_EPD: epd.metadata.name}


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


def by_age(users: Iterable[EPDDeployment]) -> tuple[EPDDeployment, ...]:
    """Return the users of a claim, the oldest first: who comes later changes nothing for those who are there."""
    return tuple(sorted(users, key=lambda user: (user.metadata.creation_timestamp, user.metadata.name)))


def collector_name(user: EPDDeployment) -> str:
    """Return the name of the collector that looks after a user's cache.

    Raises:
        ValueError: the user keeps its cache on no claim.
    """
    if (claim := encoder_cache_claim(user)) is None:
        raise ValueError(f"{user.metadata.name} keeps its encoder cache on no claim")
    return names.collector(claim.claim_name, claim.sub_path)


def collector_labels(user: EPDDeployment) -> Labels:
    """Return the labels of a collector's children and pods: no user's name, since it serves all of them."""
    name = collector_name(user)
    return _common_labels(name, names.COMPONENT_COLLECTOR) | {names.LABEL_COLLECTOR: name}


def collector_selector(user: EPDDeployment) -> Labels:
    """Return what selects a collector's pods."""
    return {names.LABEL_COLLECTOR: collector_name(user)}


def collector_annotations(user: EPDDeployment) -> dict[str, str]:
    """Return what tells whose collector an object is: a claim's name may be too long for a label."""
    claim = encoder_cache_claim(user)
    plain = {names.ANNOTATION_CLAIM: claim.claim_name if claim else ""}
    return plain | {names.ANNOTATION_SUB_PATH: claim.sub_path} if claim and claim.sub_path else plain


def collector_metadata(users: Sequence[EPDDeployment]) -> dict[str, Any]:
    """Return the metadata of a collector's child: owned by all users, so that it goes with the last of them.

    None of them controls it, since an object has one controller at most, and none is held back by it when it goes.
    """
    owners = [owner_reference(user) | {"controller": False, "blockOwnerDeletion": False} for user in by_age(users)]
    return {
        "name": collector_name(users[0]),
        "namespace": users[0].metadata.namespace,
        "labels": collector_labels(users[0]),
        "annotations": collector_annotations(users[0]),
        "ownerReferences": owners,
    }
