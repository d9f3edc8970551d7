"""The cache version: a name for everything that can change an embedding. Pure; the only place that computes it.

Operator, command line and collector call `model_version`; the result is a directory on the claim and a label on pods.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from epd.api.types import EncoderCacheSpec, EngineVersionOrigin, JSONObject, Spec
from epd.topology.arguments import Argument, parse
from epd.topology.canonical import canonical_json, digest
from epd.topology.containers import containers
from epd.topology.engine_version import engine_version
from epd.topology.harmless import TOWER_LORA_FLAG, flag_is_harmless, variable_is_harmless
from epd.topology.storage import model_claim

_FORMAT: Final = "v1"
"""Changes when this module names equal inputs differently, so that no name is used for two meanings."""
_SLUG_LENGTH: Final = 40
"""`v1-`, slug, `-` and 12 digits stay within the 63 characters of a label value."""
_HASH_LENGTH: Final = 12
"""48 bits: a thousand versions on one claim collide with a probability below 2e-9."""
RECORD_LIMIT: Final = 16_384
"""Bytes: an eighth of what one word of a command line may hold; the connector's other settings need room too."""
_DESCRIPTION_LENGTH: Final = 12

_Inputs = dict[str, Any]


def _slug(name: str) -> str:
    """The last part of the model's name, for people who list the claim; safe in labels and file names."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.rsplit("/", 1)[-1].lower()).strip("-")
    return plain[:_SLUG_LENGTH].rstrip("-") or "model"


def _has_tower_lora(arguments: Sequence[Argument]) -> bool:
    """Abbreviations count: `--enable-tower` stands for the flag."""
    return any(
        TOWER_LORA_FLAG.startswith(argument.option) and len(argument.option) > len("--enable-")
        for argument in arguments
    )


def _arguments(args: Sequence[str], *, tower_lora: bool) -> list[list[str]]:
    """Flags that may change an embedding. Sorted by flag, since only repetitions of one flag depend on their order."""
    kept = [argument for argument in parse(args) if not flag_is_harmless(argument.option, tower_lora=tower_lora)]
    return [[argument.flag, *argument.values] for argument in sorted(kept, key=lambda argument: argument.flag)]


def _variables(env: Sequence[JSONObject]) -> dict[str, Any]:
    """Variables that may change an embedding; of a Secret or ConfigMap the reference, never the value."""
    return {
        str(variable.get("name")): variable.get("value") or _present({"valueFrom": variable.get("valueFrom")})
        for variable in env
        if not variable_is_harmless(str(variable.get("name")))
    }


def _present(inputs: Mapping[str, Any]) -> _Inputs:
    """Without what is unset, so that a field added later leaves the versions of today's specs alone."""
    return {key: value for key, value in inputs.items() if value not in (None, "", {}, [])}


def _tower_lora(spec: Spec) -> bool:
    return any(_has_tower_lora(parse(given.args)) for given in containers(spec).values())


def harmless_names(spec: Spec) -> list[str]:
    """Return the flags and variables of the spec that are no part of the model version, sorted, for people."""
    tower_lora, found = _tower_lora(spec), set[str]()
    for given in containers(spec).values():
        found |= {each.option for each in parse(given.args) if flag_is_harmless(each.option, tower_lora=tower_lora)}
        found |= {each["name"] for each in given.env if variable_is_harmless(str(each.get("name")))}
    return sorted(found)


def _container_inputs(spec: Spec) -> _Inputs:
    tower_lora = _tower_lora(spec)
    return _present(
        {
            place: _present(
                {
                    "args": _arguments(given.args, tower_lora=tower_lora),
                    "env": _variables(given.env),
                    "envFrom": given.env_from,
                }
            )
            for place, given in containers(spec).items()
        }
    )


def version_inputs(spec: Spec) -> _Inputs:
    """Return what the model version is made of, as plain data for people and version records.

    The release counts by its minor number. If it is only assumed, the image itself counts: nothing else tells two
    engines apart.
    """
    model, cache, version = spec.model, spec.encoder_cache or EncoderCacheSpec(), engine_version(spec.engine)
    claim = model_claim(spec)
    return _present(
        {
            "name": model.name,
            "revision": model.revision,
            "source": _present({"claimName": claim.claim_name, "subPath": claim.sub_path}) if claim else None,
            "dtype": None if model.dtype == "auto" else model.dtype,
            "quantization": model.quantization,
            "processorKwargs": model.processor_kwargs,
            "mediaIOKwargs": model.media_io_kwargs,
            "hashAlgorithm": str(cache.hash_algorithm),
            "salt": cache.salt,
            "engine": f"image:{spec.engine.image}"
            if version.origin is EngineVersionOrigin.ASSUMED
            else f"vllm:{version.minor}",
            "containers": _container_inputs(spec),
        }
    )


def _described(value: Any) -> dict[str, Any]:
    text = canonical_json(value)
    return {"sha256": digest(value, length=_DESCRIPTION_LENGTH), "bytes": len(text)}


def _without_values(containers: Mapping[str, Any]) -> _Inputs:
    """Of variables the name and a hash: their values may be secrets, which have no business on a shared volume."""
    return {
        place: {
            part: {name: _described(value) for name, value in given.items()} if part == "env" else given
            for part, given in parts.items()
        }
        for place, parts in containers.items()
    }


def record_inputs(spec: Spec) -> _Inputs:
    """Return `version_inputs` for the record that the version has on the claim, for people who compare two of them.

    It travels in an engine's command line, whose words are limited to 128 KiB by Linux (`MAX_ARG_STRLEN`): the largest
    parts are replaced by their size and hash until all fits `RECORD_LIMIT`.
    """
    inputs = version_inputs(spec)
    if "containers" in inputs:
        inputs["containers"] = _without_values(inputs["containers"])
    for part in sorted(inputs, key=lambda part: len(canonical_json(inputs[part])), reverse=True):
        if len(canonical_json(inputs)) <= RECORD_LIMIT:
            break
        inputs[part] = _described(inputs[part])
    return inputs


def model_version(spec: Spec) -> str:
    """Return `v1-<slug>-<12 hex>`: a label value and a directory name, equal exactly for equal `version_inputs`."""
    return f"{_FORMAT}-{_slug(spec.model.name)}-{digest(version_inputs(spec), length=_HASH_LENGTH)}"
