"""Whether the encoder cache's claim can be used: from the claim, its Events and the preflight Job to `StorageReady`.

Pure, and reads no StorageClass (a namespaced operator may not): what is missing is known from the words that the
volume controller and the provisioner leave in Events. Source of those words:
k8s.io/kubernetes pkg/controller/volume/persistentvolume/pv_controller.go.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from epd.api import names
from epd.api.names import Reason
from epd.api.types import EncoderCacheSpec, EPDDeployment
from epd.controller.conditions import Finding
from epd.controller.kinds import Manifest, name_of
from epd.controller.pods import Workload, worst

_CLASS_ABSENT: Final = re.compile(r'storageclass\.storage\.k8s\.io "(?P<name>[^"]+)" not found')
_NO_CLASS: Final = "no storage class is set"
_ACCESS_MODE: Final = re.compile(r"access ?modes?|ReadWriteMany|ReadOnlyMany|\bRWX\b|MULTI_NODE|multi.?node", re.I)
_SHARED_CLASSES: Final = "Use a class for shared volumes (NFS, CephFS, EFS, Filestore)"
_ANOTHER_CLAIM: Final = (
    "A claim keeps its class and access modes: create it anew, and with it the EPDDeployment whose template made it."
)

_COSTS: Final = {
    "link": "it has no hard links: an entry larger than the engines' shared memory is a miss each time",
    "linkCount": "it does not count hard links: entries in use may be evicted, and are made anew after it",
    "mode": "modes cannot be set: engines and collector must run as one user",
    "utimens": "times cannot be set: what is in use cannot be told from what is not, so nothing is evicted",
    "renameDirectory": "directories cannot be renamed: versions that no one uses are not deleted",
}
"""What a lack that `epd.preflight` names costs."""


@dataclass(frozen=True, kw_only=True)
class Storage:
    """What the cluster has of the encoder cache."""

    claim: Manifest | None
    claim_events: tuple[Manifest, ...] = ()
    preflight: Manifest | None = None
    preflight_pods: tuple[Manifest, ...] = ()


def claim_name(epd: EPDDeployment) -> str | None:
    """The claim that the spec means, made from its template or brought; None without a volume."""
    volume = epd.spec.encoder_cache.volume if epd.spec.encoder_cache else None
    if volume is None:
        return None
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return names.encoder_cache_claim(epd.metadata.name)


def finding(epd: EPDDeployment, storage: Storage) -> Finding:
    """The condition `StorageReady`."""
    cache, name = epd.spec.encoder_cache, claim_name(epd)
    if cache is None or cache.volume is None or name is None:
        return Finding.true(Reason.NO_STORAGE, "this deployment keeps its encoder cache on no volume")
    if storage.claim is None:
        return _absent(cache, f"{epd.metadata.namespace}/{name}")
    if (problem := _modes(storage.claim)) is not None:
        return problem
    phase = (storage.claim.get("status") or {}).get("phase", "Pending")
    if phase == "Lost":
        return Finding.false(Reason.CLAIM_PENDING, f"claim {name} has lost its PersistentVolume; restore or replace it")
    if phase != "Bound":
        return _pending(storage.claim, storage.claim_events)
    return _checked(epd, storage)


def _absent(cache: EncoderCacheSpec, name: str) -> Finding:
    if cache.volume is not None and cache.volume.persistent_volume_claim is not None:
        return Finding.false(
            Reason.CLAIM_NOT_FOUND,
            f"PersistentVolumeClaim {name} not found; create it there: claims cannot be used from another namespace",
        )
    return Finding.unknown(Reason.PENDING, f"PersistentVolumeClaim {name} is being made")


def _modes(claim: Manifest) -> Finding | None:
    modes = set(claim["spec"].get("accessModes") or ())
    if modes & {"ReadWriteMany", "ReadWriteOnce"}:
        return None
    held = ", ".join(sorted(modes)) or "none"
    why = "several pods share it" if "ReadWriteOncePod" in modes else "encoders write to it"
    return Finding.false(
        Reason.ACCESS_MODE_NOT_SUPPORTED,
        f"claim {name_of(claim)} has access mode {held}, but {why}. Access modes of a claim cannot be changed: delete "
        "the claim and ask for ReadWriteMany, or for ReadWriteOnce to run all pods on one node.",
    )


def _pending(claim: Manifest, events: Iterable[Manifest]) -> Finding:
    name, spec = name_of(claim), claim["spec"]
    newest = max(events, key=_weight, default=None)
    words = str(newest.get("message", "")) if newest else ""
    if newest is not None and newest.get("reason") == "WaitForFirstConsumer":
        return Finding.unknown(
            Reason.WAITING_FOR_FIRST_CONSUMER, f"claim {name} is bound as soon as its first pod has a node"
        )
    if (absent := _CLASS_ABSENT.search(words)) is not None:
        return Finding.false(
            Reason.STORAGE_CLASS_NOT_FOUND,
            f'claim {name} names StorageClass "{absent["name"]}", which does not exist. Create it, or use '
            f"one that kubectl get storageclass lists. {_ANOTHER_CLAIM}",
        )
    if _NO_CLASS in words and not spec.get("storageClassName"):
        return Finding.false(
            Reason.NO_DEFAULT_STORAGE_CLASS,
            f"claim {name} names no StorageClass and the cluster has no default one. Set storageClassName.",
        )
    class_name, modes = spec.get("storageClassName", ""), ", ".join(spec.get("accessModes") or ())
    if newest is not None and newest.get("reason") == "ProvisioningFailed" and _ACCESS_MODE.search(words):
        return Finding.false(
            Reason.ACCESS_MODE_NOT_SUPPORTED,
            f'StorageClass "{class_name}" did not provision {modes} for claim {name}: "{words}". {_SHARED_CLASSES}, '
            f"or accessModes: [ReadWriteOnce] to run all pods on one node. {_ANOTHER_CLAIM}",
        )
    if newest is None or not _weight(newest)[0]:
        return Finding.unknown(Reason.PENDING, f"claim {name} is not Bound yet{f': {words}' if words else ''}")
    return Finding.false(
        Reason.CLAIM_PENDING, f'claim {name} ({modes}, class {class_name or "none"}) is Pending: "{words}"'
    )


def _checked(epd: EPDDeployment, storage: Storage) -> Finding:
    claim, job = storage.claim, storage.preflight
    if claim is None:
        raise ValueError("a claim is checked only when there is one")
    name = name_of(claim)
    if job is None:
        return Finding.unknown(
            Reason.CHECKING, f"claim {name} is Bound; whether it is writable is checked once an engine pod has a node"
        )
    result = report(storage.preflight_pods)
    if (job.get("status") or {}).get("succeeded"):
        return _usable(claim, (result or {}).get("lacks") or ())
    if result is not None and not result.get("ok"):
        return _not_writable(f"{epd.metadata.namespace}/{name}", result)
    trouble = worst(storage.preflight_pods, Workload(field="encoderCache", container=names.PREFLIGHT_CONTAINER))
    if trouble is not None:
        return Finding.false(trouble.reason, f"claim {name} could not be checked: {trouble.message}")
    return Finding.unknown(Reason.CHECKING, f"claim {name} is Bound; Job {name_of(job)} checks whether it is writable")


def _usable(claim: Manifest, lacks: Iterable[str]) -> Finding:
    name = name_of(claim)
    capacity = (claim.get("status") or {}).get("capacity", {}).get("storage", "")
    text = f"claim {name} is Bound{f' ({capacity})' if capacity else ''} and writable"
    if costs := "; ".join(_COSTS.get(lack, f"it lacks {lack}") for lack in lacks):
        return Finding.true(Reason.REDUCED_GUARANTEES, f"{text}, but {costs}")
    if "ReadWriteMany" in (claim["spec"].get("accessModes") or ()):
        return Finding.true(Reason.BOUND, text)
    node = (claim["metadata"].get("annotations") or {}).get("volume.kubernetes.io/selected-node")
    where = f"node {node}" if node else "one node"
    return Finding.true(Reason.SINGLE_NODE, f"{text}; with ReadWriteOnce all pods that mount it run on {where}")


def _not_writable(name: str, result: dict[str, Any]) -> Finding:
    return Finding.false(
        Reason.NOT_WRITABLE,
        f"uid {result.get('uid')} gid {result.get('gid')} cannot {result.get('step')} in {name}: {result.get('errno')} "
        f"(its root has mode {result.get('mode')}, owner {result.get('owner')}:{result.get('group')}). "
        f"{result.get('fix') or 'chown the directory, or set spec.securityContext.runAsUser.'}",
    )


def report(preflight_pods: Iterable[Manifest]) -> dict[str, Any] | None:
    """The newest result that a preflight pod left in its termination message; None if there is none yet."""
    ended = [
        state
        for pod in preflight_pods
        for container in (pod.get("status") or {}).get("containerStatuses") or ()
        for state in (
            (container.get("state") or {}).get("terminated"),
            (container.get("lastState") or {}).get("terminated"),
        )
        if state is not None and state.get("message")
    ]
    for state in sorted(ended, key=lambda state: str(state.get("finishedAt", "")), reverse=True):
        try:
            result = json.loads(state["message"])
        except ValueError:
            continue
        if isinstance(result, dict) and "ok" in result:
            return result
    return None


def _weight(event: Manifest) -> tuple[bool, str]:
    # A provisioner that fails alternates with the volume controller's "waiting for the external provisioner": the
    # failure is the news. FailedBinding is of type Normal.
    failed = event.get("type") == "Warning" or event.get("reason") == "FailedBinding"
    series = event.get("series") or {}
    return failed, str(series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or "")
