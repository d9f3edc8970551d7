"""Where things lie in an engine pod, and which claim holds the encoder cache. Pure; never asks the cluster."""

from __future__ import annotations

from typing import Final

from epd.api import names
from epd.api.types import ClaimRef, ConnectorKind, EPDDeployment, ModelSource, Spec

HF_CACHE_PATH: Final = "/var/lib/epd/hf-cache"
"""The same with and without a claim: offline, vLLM takes the snapshot's path for the model, as it takes MODEL_PATH."""
HOME_PATH: Final = "/var/lib/epd/home"

_SHARED_ACCESS: Final = "ReadWriteMany"


def model_claim(spec: Spec) -> ClaimRef | None:
    """Return the claim that holds the weights; None when they come from a hub."""
    return spec.model.source.persistent_volume_claim if spec.model.source else None


def model_reference(spec: Spec) -> str:
    """Return what `vllm serve` is given as the model: the hub's id, or the path of the claim's mount."""
    return spec.model.name if model_claim(spec) is None else names.MODEL_PATH


def hf_cache_claim(spec: Spec) -> ClaimRef | None:
    """Return the claim that keeps downloads from the hub; None when each pod keeps its own."""
    source = spec.model.source or ModelSource()
    return source.hugging_face.cache_claim if source.hugging_face else None


def offline(spec: Spec) -> bool:
    """Tell whether the engine must not ask a hub: weights from a claim, or a hub's cache used as it is."""
    source = spec.model.source or ModelSource()
    return source.persistent_volume_claim is not None or bool(source.hugging_face and source.hugging_face.offline)


def encoder_cache_claim(epd: EPDDeployment) -> ClaimRef | None:
    """Return the claim that holds the encoder cache, made or brought; None when no volume is asked for."""
    cache = epd.spec.encoder_cache
    if cache is None or cache.volume is None:
        return None
    if cache.volume.persistent_volume_claim is not None:
        return cache.volume.persistent_volume_claim
    return ClaimRef(claim_name=names.encoder_cache_claim(epd.metadata.name))


def wants_collector(epd: EPDDeployment) -> bool:
    """Tell whether an object alone would have its claim collected.

    Of a custom connector's files the operator knows nothing: without records they are foreign to a collector.
    """
    cache = epd.spec.encoder_cache
    known = cache is not None and cache.connector is not ConnectorKind.CUSTOM and cache.garbage_collection.enabled
    return known and encoder_cache_claim(epd) is not None


def access_modes(spec: Spec) -> list[str]:
    """Return the access modes of the claim to make; by default several nodes may mount it."""
    cache = spec.encoder_cache
    template = cache.volume.volume_claim_template if cache and cache.volume else None
    given = template.spec.get("accessModes") if template else None
    return list(given) if given else [_SHARED_ACCESS]


def single_node(spec: Spec) -> bool:
    """Tell whether all engines must run on one node, because the claim to make can be mounted on one only."""
    return _SHARED_ACCESS not in access_modes(spec)


def version_directory(version: str) -> str:
    """Return the directory of one model version, as engines see it."""
    return f"{names.ENCODER_CACHE_PATH}/{version}"
