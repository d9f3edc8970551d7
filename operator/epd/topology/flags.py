"""The engine's command line: the one place where vLLM's flags are written. Pure.

Facts are from vLLM 0.28 to 0.33: `engine/arg_utils.py`, `config/vllm.py`, `config/ec_transfer.py`,
`distributed/ec_transfer/ec_connector/example_connector.py`. Whatever is written here works in all of these releases,
but for the Managed connector (`engine_version`); keys that some refuse (`ec_rank` and the like, gone since 0.32) are
not used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from epd.api.names import (
    CONNECTOR_PACKAGE,
    ENCODER_CACHE_PATH,
    ENGINE_TLS_PATH,
    TLS_CERTIFICATE,
    TLS_KEY,
    Role,
)
from epd.api.quantity import duration_seconds
from epd.api.types import (
    ClaimRef,
    ConnectorKind,
    Device,
    EncoderCacheSpec,
    EPDDeployment,
    HashAlgorithm,
    Spec,
    Topology,
)
from epd.topology.arguments import last_value
from epd.topology.canonical import canonical_json
from epd.topology.model_version import model_version, record_inputs
from epd.topology.roles import device_of, drain_seconds, role_spec_of, topology_of
from epd.topology.storage import encoder_cache_claim, model_claim, model_reference, version_directory

COMMAND: Final = ("vllm", "serve")

_MANAGED_CONNECTOR: Final = "ManagedECConnector"
_MANAGED_MODULE: Final = f"{CONNECTOR_PACKAGE}.managed"
_EXAMPLE_CONNECTOR: Final = "ECExampleConnector"
_SHARED_STORAGE: Final = "shared_storage_path"
"""The key of vLLM's example connector for its directory."""

_WILDCARD: Final = "*"
"""In a domain: vLLM compares whole names alone (multimodal/media/connector.py), so the proxy checks by itself."""
_NO_DOMAIN: Final = "data-urls-only.invalid"
"""vLLM takes an empty list for no limit. Names under `.invalid` exist nowhere (RFC 6761), so nothing can be fetched."""

_HASHERS: Final = {HashAlgorithm.BLAKE3: "blake3", HashAlgorithm.SHA256: "sha256"}

_ENCODER_BUDGET: Final = 114_688
"""Embeddings per step and in the local cache of an encoder, as in vLLM's own scripts
(examples/disaggregated/disaggregated_encoder): a few large videos, or some hundred pictures."""
_ENCODER_BUDGET_CPU: Final = 8_192
"""vLLM fills the budget with dummy items at start, which takes a CPU minutes for the figure above."""
_ENCODER_MEMORY_UTILIZATION: Final = "0.01"
"""An encoder has no KV cache to give memory to (vLLM's own scripts use the same figure)."""

_BUDGET_FLAG: Final = "--max-num-batched-tokens"
_SCALES: Final = (
    {"": 1}
    | {unit: 1000**power for power, unit in enumerate("kmgt", 1)}
    | {unit: 1024**power for power, unit in enumerate("KMGT", 1)}
)
"""vLLM's units of numbers: `16k` is 16,000 and `16K` is 16,384 (`utils/argparse_utils.py`, `human_readable_int`)."""


def literal(value: str) -> str:
    """Return `value` so that the kubelet, which expands `$(NAME)` in arguments, passes it on unchanged."""
    return value.replace("$", "$$")


def ec_role(spec: Spec, role: Role) -> str:
    """Return the role in vLLM's encoder cache transfer."""
    if role is Role.ENCODE:
        return "ec_producer"
    return "ec_both" if topology_of(spec) is Topology.AGGREGATED else "ec_consumer"


def _managed(epd: EPDDeployment, cache: EncoderCacheSpec, claim: ClaimRef) -> dict[str, Any]:
    """The keys that `epd.connector.managed` reads. Ours win: another root or version would mix up caches."""
    ours = {
        "root": ENCODER_CACHE_PATH,
        "version": model_version(epd.spec),
        "claim": f"{epd.metadata.namespace}/{claim.claim_name}",
        "inputs": record_inputs(epd.spec),
        "min_idle_seconds": duration_seconds(cache.garbage_collection.min_idle),
    }
    return {
        "ec_connector": _MANAGED_CONNECTOR,
        "ec_connector_module_path": _MANAGED_MODULE,
        "ec_connector_extra_config": cache.extra_config | ours,
    }


def _plain_connector(cache: EncoderCacheSpec, directory: str | None) -> dict[str, Any]:
    place = {_SHARED_STORAGE: directory} if directory else {}
    if cache.connector is ConnectorKind.CUSTOM and cache.custom:
        return {
            "ec_connector": cache.custom.class_name,
            "ec_connector_module_path": cache.custom.module,
            "ec_connector_extra_config": place | cache.extra_config,
        }
    return {"ec_connector": _EXAMPLE_CONNECTOR, "ec_connector_extra_config": cache.extra_config | place}


def ec_transfer_config(epd: EPDDeployment, role: Role) -> dict[str, Any] | None:
    """Return vLLM's `ECTransferConfig`; None for no encoder cache (the flag itself would make vLLM want a connector).

    A custom connector with a volume gets the version's directory under the example connector's key.
    """
    cache, claim = epd.spec.encoder_cache, encoder_cache_claim(epd)
    if cache is None:
        return None
    if cache.connector is ConnectorKind.MANAGED and claim:
        return _managed(epd, cache, claim) | {"ec_role": ec_role(epd.spec, role)}
    directory = version_directory(model_version(epd.spec)) if claim else None
    return _plain_connector(cache, directory) | {"ec_role": ec_role(epd.spec, role)}


def _model_flags(spec: Spec) -> list[str]:
    model = spec.model
    flags = ["--served-model-name", *map(literal, model.served_names or [model.name])]
    if model.revision and model_claim(spec) is None:
        flags += ["--revision", literal(model.revision)]
    if model.dtype != "auto":
        flags += ["--dtype", literal(model.dtype)]
    if model.quantization:
        flags += ["--quantization", literal(model.quantization)]
    if model.max_model_len:
        flags += ["--max-model-len", str(model.max_model_len)]
    return flags


def _media_flags(spec: Spec) -> list[str]:
    model, domains = spec.model, spec.proxy.media.allowed_domains
    cache = spec.encoder_cache or EncoderCacheSpec()
    flags = ["--mm-hasher-algorithm", _HASHERS[cache.hash_algorithm]]
    for flag, value in (
        ("--limit-mm-per-prompt", model.media_limits),
        ("--mm-processor-kwargs", model.processor_kwargs),
        ("--media-io-kwargs", model.media_io_kwargs),
    ):
        if value:
            flags += [flag, literal(canonical_json(value))]
    if not any(domain.startswith(_WILDCARD) for domain in domains):
        # in lower case, as vLLM reads the names in URLs
        flags += ["--allowed-media-domains", *([domain.lower() for domain in domains] if domains else [_NO_DOMAIN])]
    return flags


def _tls_flags(spec: Spec) -> list[str]:
    if spec.engine.tls is None:
        return []
    files = ["--ssl-certfile", f"{ENGINE_TLS_PATH}/{TLS_CERTIFICATE}", "--ssl-keyfile", f"{ENGINE_TLS_PATH}/{TLS_KEY}"]
    return [*files, "--enable-ssl-refresh"]


def _count(text: str) -> int:
    """The number that vLLM reads; 0 for a text that it refuses, such as a fraction of a binary unit."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+(?=[kmgt]))?)([kKmMgGtT]?)", text)
    return int(Decimal(match[1]) * _SCALES[match[2]]) if match else 0


def _given_budget(*args: Sequence[str]) -> int:
    """The largest `--max-num-batched-tokens` that the user gives; 0 for none."""
    return max(_count(last_value(given, _BUDGET_FLAG) or "") for given in args)


def _encoder_flags(spec: Spec) -> list[str]:
    """Flags of an encoder.

    The first two follow from the producer's role since 0.29, but say in the pod what the engine is. An item that the
    prefill side could take must fit an encoder: its budget is at least the prefill side's.
    """
    device = device_of(spec, Role.ENCODE)
    default = _ENCODER_BUDGET_CPU if device is Device.CPU else _ENCODER_BUDGET
    prefill_args = spec.prefill_decode.args if spec.prefill_decode else []
    budget = max(default, _given_budget(spec.engine.args, prefill_args))
    flags = ["--mm-encoder-only", "--no-enable-prefix-caching", _BUDGET_FLAG, str(budget)]
    if device in (Device.CUDA, Device.ROCM):
        flags += ["--gpu-memory-utilization", _ENCODER_MEMORY_UTILIZATION]
    return flags


def engine_args(epd: EPDDeployment, role: Role) -> list[str]:
    """Return the arguments of `vllm serve` for one role.

    Of a repeated flag vLLM takes the last one, so the user's come after ours and the role's after the engine's. What
    makes an encoder comes between these two: batch size and memory in spec.engine.args are meant for engines that
    generate, and an encoder that took them would hold most of a GPU for nothing, or refuse items that they take.
    """
    spec, role_spec = epd.spec, role_spec_of(epd.spec, role)
    flags = [literal(model_reference(spec)), "--host", "0.0.0.0", "--port", str(role_spec.port)]  # noqa: S104 (a pod)
    flags += _model_flags(spec)
    if role_spec.parallelism.tensor > 1:
        flags += ["--tensor-parallel-size", str(role_spec.parallelism.tensor)]
    flags += _media_flags(spec)
    if config := ec_transfer_config(epd, role):
        flags += ["--ec-transfer-config", literal(canonical_json(config))]
    flags += _tls_flags(spec)
    flags += ["--shutdown-timeout", str(drain_seconds(spec, role)), "--enable-request-id-headers"]
    if device_of(spec, role) is Device.CPU:
        flags.append("--enforce-eager")  # compiling for a CPU costs minutes at start and gains little
    encoder_flags = _encoder_flags(spec) if role is Role.ENCODE else []
    return [*flags, *spec.engine.args, *encoder_flags, *role_spec.args]
