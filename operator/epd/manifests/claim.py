"""The encoder cache's PersistentVolumeClaim, made from its template. Pure; never renders a claim that was brought."""

from __future__ import annotations

from typing import Any

from epd.api import names
from epd.api.types import EPDDeployment, ReclaimPolicy
from epd.manifests.context import Manifest
from epd.manifests.labels import labels, metadata
from epd.topology.storage import access_modes


def claim(epd: EPDDeployment) -> tuple[Manifest, ...]:
    """Return the claim to make; nothing when the claim is brought or no volume is asked for.

    Under `Retain` it has no owner and so stays when the EPDDeployment goes; its labels still say whose it is.
    """
    cache = epd.spec.encoder_cache
    template = cache.volume.volume_claim_template if cache and cache.volume else None
    if cache is None or template is None:
        return ()
    own_labels = labels(epd, names.COMPONENT_STORAGE)
    meta: dict[str, Any] = metadata(
        epd,
        names.encoder_cache_claim(epd.metadata.name),
        {**(template.metadata.get("labels") or {}), **own_labels},
        owned=cache.reclaim_policy is not ReclaimPolicy.RETAIN,
    )
    if annotations := template.metadata.get("annotations"):
        meta["annotations"] = dict(annotations)
    return (
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": meta,
            "spec": {**template.spec, "accessModes": access_modes(epd.spec)},
        },
    )
