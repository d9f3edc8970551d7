"""What the collector keeps of the objects that it lists: names of versions, uids, claims, policies. Pure.

An object that cannot be read in full is never dropped: what could be told of it is kept, and that the rest could not.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from epd.api import names
from epd.api.quantity import quantity_value
from epd.api.types import ClaimRef, EncoderCacheSpec, EPDDeployment, ReclaimPolicy
from epd.topology.model_version import model_version, record_inputs

JSONObject = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A directory on a claim, as users of the API name it."""

    claim: str
    sub_path: str = ""

    def holds(self, claim: ClaimRef) -> bool:
        """Tell whether `claim` means this directory, however its path is written."""
        return claim.claim_name == self.claim and plain_path(claim.sub_path) == plain_path(self.sub_path)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPod:
    """A pod, also a terminating one. `epd` and `version` are its labels, empty without."""

    uid: str
    epd: str = ""
    version: str = ""
    engine: bool = False
    """Whether it can hold or want entries: it has a role or a version; a proxy has neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenWorkload:
    """A Deployment or ReplicaSet: the version of its template and how many pods it wants."""

    version: str
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenEPD:
    """An EPDDeployment."""

    name: str
    deleting: bool = False
    finalizing: bool = False
    """Whether it has the finalizer by which it waits for its entries to be removed."""
    claim: ClaimRef | None = None
    """Where its encoder cache lies; None: nowhere, or `claim_unknown`."""
    claim_unknown: bool = False
    versions: frozenset[str] = frozenset()
    """Of spec, status and the status of its roles."""
    version: str = ""
    """Of the spec alone; empty if `unreadable`."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """What `version` is made of."""
    cache: EncoderCacheSpec | None = None
    """None: it has none, or not to be told."""
    unreadable: str = ""
    """Why the spec could not be read."""

    @property
    def reclaims(self) -> bool:
        """Whether its entries are to go with it: the finalizer alone may be left over from another reclaimPolicy."""
        return self.finalizing and self.cache is not None and self.cache.reclaim_policy is ReclaimPolicy.DELETE

    def uses(self, root: Root) -> bool:
        """Tell whether its cache lies there; one that cannot be told may lie anywhere."""
        if self.claim is None:
            return self.claim_unknown
        return root.holds(self.claim)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenClaim:
    """The PersistentVolumeClaim that the root lies on."""

    uid: str
    adopts: str = ""
    """Id of the root that it may take over."""
    requested_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Everything of the namespace that says which versions live.

    Attributes:
        taken: When the first list was asked for, by the monotonic clock, in seconds.
    """

    taken: float
    pods: tuple[SeenPod, ...] = ()
    workloads: tuple[SeenWorkload, ...] = ()
    epds: tuple[SeenEPD, ...] = ()


def plain_path(path: str) -> str:
    """Return a directory's path in one spelling; the volume's root is empty."""
    plain = posixpath.normpath(path).strip("/") if path else ""
    return "" if plain == "." else plain


def see_pod(raw: JSONObject) -> SeenPod:
    """Read a pod's metadata; a pod's uid is always there."""
    metadata = raw["metadata"]
    labels = metadata.get("labels") or {}
    version = str(labels.get(names.LABEL_MODEL_VERSION, ""))
    return SeenPod(
        uid=str(metadata["uid"]),
        epd=str(labels.get(names.LABEL_EPD, "")),
        version=version,
        engine=bool(version) or names.LABEL_ROLE in labels,
    )


def see_workload(raw: JSONObject) -> SeenWorkload:
    """Read a Deployment or ReplicaSet. Absent `replicas` stand for one, as in the API."""
    spec = raw.get("spec") or {}
    template = (spec.get("template") or {}).get("metadata") or {}
    replicas = spec.get("replicas")
    return SeenWorkload(
        version=str((template.get("labels") or {}).get(names.LABEL_MODEL_VERSION, "")),
        replicas=1 if replicas is None else int(replicas),
    )


def see_claim(raw: JSONObject) -> SeenClaim:
    """Read a PersistentVolumeClaim."""
    metadata = raw["metadata"]
    requests = ((raw.get("spec") or {}).get("resources") or {}).get("requests") or {}
    return SeenClaim(
        uid=str(metadata["uid"]),
        adopts=str((metadata.get("annotations") or {}).get(names.ANNOTATION_ADOPT_ROOT, "")),
        requested_bytes=_bytes(requests.get("storage")),
    )


def see_epd(raw: JSONObject) -> SeenEPD:
    """Read an EPDDeployment, as far as it can be read."""
    metadata = raw["metadata"]
    name, spec = str(metadata["name"]), raw.get("spec") or {}
    version, unreadable = "", ""
    inputs: Mapping[str, Any] = {}
    try:
        parsed = EPDDeployment.model_validate({"metadata": {"name": name}, "spec": spec}).spec
        version, inputs = model_version(parsed), record_inputs(parsed)
    except Exception as error:  # whatever it is, it must not make versions look dead
        unreadable = _words(error)
    claim, claim_unknown = _claim(name, spec)
    return SeenEPD(
        name=name,
        deleting=bool(metadata.get("deletionTimestamp")),
        finalizing=names.FINALIZER_ENCODER_CACHE in (metadata.get("finalizers") or ()),
        claim=claim,
        claim_unknown=claim_unknown,
        versions=_status_versions(raw.get("status") or {}) | ({version} if version else set()),
        version=version,
        inputs=inputs,
        cache=_cache(spec),
        unreadable=unreadable,
    )


def _words(error: Exception) -> str:
    """The field and what is wrong with it, in one line; never empty."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return " ".join(str(error).split()) or type(error).__name__


def _status_versions(status: JSONObject) -> frozenset[str]:
    """From the plain object: a status that an older program cannot parse still names versions."""
    found = {status.get("modelVersion")}
    for role in status.get("roles") or ():
        found |= set(role.get("modelVersions") or ())
    return frozenset(str(version) for version in found if version)


def _cache(spec: JSONObject) -> EncoderCacheSpec | None:
    """Apart from the rest of the spec, so that a policy is known even where a version is not."""
    given = spec.get("encoderCache")
    try:
        return None if given is None else EncoderCacheSpec.model_validate(given)
    except ValueError:
        return None


def _claim(name: str, spec: JSONObject) -> tuple[ClaimRef | None, bool]:
    """As `topology.storage.encoder_cache_claim`, for a spec that need not parse; and whether it could not be told."""
    volume = (spec.get("encoderCache") or {}).get("volume")
    if volume is None:
        return None, False
    brought = volume.get("persistentVolumeClaim") or {}
    if claim := brought.get("claimName"):
        return ClaimRef.model_construct(claim_name=str(claim), sub_path=str(brought.get("subPath") or "")), False
    if volume.get("volumeClaimTemplate") is not None:
        return ClaimRef(claim_name=names.encoder_cache_claim(name)), False
    return None, True


def _bytes(quantity: Any) -> int | None:
    """None for what is no quantity: then there is no default for the most that may be used."""
    try:
        return int(quantity_value(quantity))
    except (TypeError, ValueError):
        return None
