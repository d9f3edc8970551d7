"""Who holds `spec.replicas` of a role's Deployment: ourselves, or a scaler.

Pure: says what the second field manager (`names.REPLICAS_FIELD_MANAGER`) should apply. It is needed because a field
that its only manager stops applying is removed, and a Deployment without `replicas` gets 1 (measured on 1.35): the
second manager takes the live value over before the first one leaves the field out. Suspending a role that a scaler
scales writes 0 the same way, and keeps the number to come back to in an annotation beside it.
"""

from __future__ import annotations

from typing import Any, Final

from epd.api import names
from epd.controller.kinds import Manifest, name_of

ANNOTATION_RESUME: Final = "epd.dev/replicas-before-suspend"
"""On a role's Deployment, held by the second field manager, only while suspended."""


def main_manifest(desired: Manifest, *, live: Manifest | None, external: bool, suspended: bool) -> Manifest:
    """What the main field manager applies: without `replicas` when a scaler owns it.

    A Deployment that is made while suspended gets 0 from the first, or it would load a model for nothing.
    """
    if not external:
        return desired
    spec = {key: value for key, value in desired["spec"].items() if key != "replicas"}
    if suspended and live is None:
        spec["replicas"] = 0
    return {**desired, "spec": spec}


def hand_over(live: Manifest | None, *, external: bool, suspended: bool) -> Manifest | None:
    """What the second field manager applies before the main apply; None: nothing.

    `live` is the role's Deployment as it is, None when there is none yet.
    """
    if live is None:
        return None
    held = (live["metadata"].get("annotations") or {}).get(ANNOTATION_RESUME)
    now = int(live["spec"].get("replicas", 1))
    if not external:
        # Back to Static. The main manager takes the value first; only then may the second let go, or 1 is set.
        return _apply(live) if held is not None and _holds_replicas(live, names.FIELD_MANAGER) else None
    if suspended:
        if held is not None and now == 0:
            return None
        return _apply(live, replicas=0, resume=held if held is not None else str(now))
    if held is not None:
        # A scaler starts from at least 1 (HPA never scales from 0).
        return _apply(live, replicas=max(1, int(held)) if held.isdecimal() else 1)
    return _apply(live, replicas=now) if _holds_replicas(live, names.FIELD_MANAGER) else None


def stop(live: Manifest) -> Manifest | None:
    """What the second field manager applies to a role of an object that is being deleted; None: nothing."""
    is_role = names.LABEL_ROLE in (live["metadata"].get("labels") or {})
    leaving = live["metadata"].get("deletionTimestamp")
    return _apply(live, replicas=0) if is_role and not leaving and live["spec"].get("replicas", 1) else None


def _apply(live: Manifest, *, replicas: int | None = None, resume: str | None = None) -> Manifest:
    metadata: dict[str, Any] = {
        "name": name_of(live),
        "namespace": live["metadata"]["namespace"],
        "uid": live["metadata"]["uid"],
    }
    if resume is not None:
        metadata["annotations"] = {ANNOTATION_RESUME: resume}
    body: Manifest = {"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": metadata}
    if replicas is not None:
        body["spec"] = {"replicas": replicas}
    return body


def _holds_replicas(live: Manifest, manager: str) -> bool:
    return any(
        entry.get("manager") == manager
        and entry.get("operation") == "Apply"
        and "f:replicas" in (entry.get("fieldsV1") or {}).get("f:spec", {})
        for entry in live["metadata"].get("managedFields") or ()
    )
