"""Keys of the work queue: which there are, and which of them a watch event concerns. Pure.

`<namespace>/<name>` is one EPDDeployment. `claim/<namespace>/<claim>` is one PersistentVolumeClaim with all
EPDDeployments that keep their encoder cache on it: its collectors serve all of them, and two reconciles that applied
one collector would drop each other's owner reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from epd.api import names
from epd.controller import kinds
from epd.controller.kinds import Kind, Manifest

_CLAIM: Final = "claim"


@dataclass(frozen=True)
class ClaimKey:
    """One claim, by name."""

    namespace: str
    claim: str

    def __str__(self) -> str:
        return f"{_CLAIM}/{self.namespace}/{self.claim}"


def epd_key(manifest: Manifest) -> str:
    """The key of an EPDDeployment."""
    return f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"


def claim_key(key: str) -> ClaimKey | None:
    """The claim that a key names; None for an EPDDeployment's. A namespace may be named `claim`: parts are counted."""
    kind, _, rest = key.partition("/")
    namespace, slash, claim = rest.partition("/")
    return ClaimKey(namespace, claim) if kind == _CLAIM and slash else None


def namespace_of(key: str) -> str:
    """The namespace of a key of either kind."""
    claim = claim_key(key)
    return claim.namespace if claim else key.split("/", 1)[0]


def claims_of(parent: Manifest) -> frozenset[ClaimKey]:
    """The claims that an EPDDeployment uses, by its spec, or used, by its status; read from objects of any version."""
    meta = parent["metadata"]
    volume = _get(parent, "spec", "encoderCache", "volume")
    brought = _get(volume, "persistentVolumeClaim", "claimName")
    made = names.encoder_cache_claim(meta["name"]) if volume and not brought else None
    used = _get(parent, "status", "encoderCache", "claim")
    return frozenset(ClaimKey(meta["namespace"], str(claim)) for claim in (brought, made, used) if claim)


def owner_key(kind: Kind, obj: Manifest) -> str | None:
    """The key that an object belongs to: the EPDDeployment that it is or that made it, or a collector's claim."""
    meta = obj["metadata"]
    if kind == kinds.EPD:
        return epd_key(obj)
    if name := (meta.get("labels") or {}).get(names.LABEL_EPD):
        return f"{meta['namespace']}/{name}"
    if claim := collected_claim(obj):
        return str(ClaimKey(meta["namespace"], claim))
    return None  # a claim that the user brought


def keys_of(kind: Kind, obj: Manifest) -> tuple[str, ...]:
    """What to reconcile when an object has changed."""
    key = owner_key(kind, obj)
    claims = sorted(map(str, claims_of(obj))) if kind == kinds.EPD else ()
    return (*([key] if key else ()), *claims)


def collected_claim(obj: Manifest) -> str:
    """The claim that a collector's child or pod serves; empty for anything else."""
    meta = obj["metadata"]
    if names.LABEL_COLLECTOR not in (meta.get("labels") or {}):
        return ""
    return str((meta.get("annotations") or {}).get(names.ANNOTATION_CLAIM, ""))


def _get(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
