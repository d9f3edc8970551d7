"""What must match between roles at one moment, as one hash. Pure; the proxy pairs pods by it."""

from __future__ import annotations

from typing import Any, Final

from epd.api.types import EPDDeployment
from epd.topology.canonical import digest
from epd.topology.model_version import model_version
from epd.topology.storage import encoder_cache_claim, model_reference, offline

_HASH_LENGTH: Final = 12


def pairing_inputs(epd: EPDDeployment) -> dict[str, Any]:
    """Return what the pairing is made of.

    `model` and `offline` are in it because vLLM hashes the model's string, or offline its snapshot's path, into the
    identifiers that it computes: engines that differ in them never find each other's entries.
    """
    spec, cache, claim = epd.spec, epd.spec.encoder_cache, encoder_cache_claim(epd)
    return {
        "modelVersion": model_version(spec),
        "image": spec.engine.image,
        "model": model_reference(spec),
        "offline": offline(spec),
        "connector": cache and str(cache.connector),
        "custom": cache and cache.custom and [cache.custom.module, cache.custom.class_name],
        "extraConfig": cache and cache.extra_config,
        "claim": claim and [claim.claim_name, claim.sub_path],
    }


def pairing(epd: EPDDeployment) -> str:
    """Return the 12 hex digits of the label `epd.dev/pairing`."""
    return digest(pairing_inputs(epd), length=_HASH_LENGTH)
