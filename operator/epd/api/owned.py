"""Engine flags and environment variables that belong to the operator, and what to use instead of each.

One table for the CustomResourceDefinition's rules and for the reconciler's second check. Pure data and matching; it
neither renders flags nor reads an object. Flag names were compared with the parser of vLLM 0.32
(vllm/entrypoints/launchers/cli_args.py, vllm/engine/arg_utils.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

_REPLICAS: Final = "one pod is one engine; use replicas of the role to scale"
_ENDPOINT: Final = "the proxy must reach every engine; clients use the proxy, see spec.proxy"
_ONE_POD: Final = "one engine runs in one pod; engines over several pods are not supported"
_TLS: Final = "is set by the operator; use spec.engine.tls"
_CLIENT_CERTIFICATES: Final = "is refused: the kubelet probes engines, and shows no certificate"
_ENCODER_ONLY: Final = "the operator decides by role: spec.encode makes encoders"
_KEYS_APART: Final = "with it a request's own media options change embeddings that other requests then read"

OWNED_FLAGS: Final = MappingProxyType(
    {
        # the model
        "--model": "is set by the operator; use spec.model.name and spec.model.source",
        "--served-model-name": "is set by the operator; use spec.model.servedNames",
        "--revision": "is set by the operator; use spec.model.revision",
        "--dtype": "is set by the operator; use spec.model.dtype",
        "--quantization": "is set by the operator; use spec.model.quantization",
        "--max-model-len": "is set by the operator; use spec.model.maxModelLen",
        "--mm-processor-kwargs": "is set by the operator; use spec.model.processorKwargs",
        "--media-io-kwargs": "is set by the operator; use spec.model.mediaIOKwargs",
        "--limit-mm-per-prompt": "is set by the operator; use spec.model.mediaLimits",
        "--hf-token": "would show the token in the pod; use spec.model.source.huggingFace.tokenSecretRef",
        "--download-dir": "is set by the operator; use spec.model.source.huggingFace.cacheClaim",
        # the roles
        "--ec-transfer-config": "is set by the operator from spec.encoderCache; use spec.encoderCache.extraConfig",
        "--kv-transfer-config": "is reserved for the transfer between prefill and decode",
        "--mm-hasher-algorithm": "is set by the operator; use spec.encoderCache.hashAlgorithm",
        "--mm-encoder-only": f"is refused: {_ENCODER_ONLY}",
        "--no-mm-encoder-only": f"is refused: {_ENCODER_ONLY}",
        "--language-model-only": "is refused: it switches media off; use spec.model.mediaLimits",
        "--no-language-model-only": "is refused: use spec.model.mediaLimits",
        "--tensor-parallel-size": "is set by the operator; use parallelism.tensor of the role",
        "--pipeline-parallel-size": "is refused: pipeline parallelism is not supported yet",
        "--prefill-context-parallel-size": "is refused: context parallelism is not supported yet",
        "--data-parallel-size": f"is refused: {_REPLICAS}",
        "--data-parallel-rank": f"is refused: {_REPLICAS}",
        "--data-parallel-start-rank": f"is refused: {_REPLICAS}",
        "--data-parallel-size-local": f"is refused: {_REPLICAS}",
        "--data-parallel-address": f"is refused: {_REPLICAS}",
        "--data-parallel-rpc-port": f"is refused: {_REPLICAS}",
        "--data-parallel-backend": f"is refused: {_REPLICAS}",
        "--data-parallel-supervisor-port": f"is refused: {_REPLICAS}",
        "--data-parallel-hybrid-lb": f"is refused: {_REPLICAS}",
        "--no-data-parallel-hybrid-lb": f"is refused: {_REPLICAS}",
        "--data-parallel-external-lb": f"is refused: {_REPLICAS}",
        "--no-data-parallel-external-lb": f"is refused: {_REPLICAS}",
        "--data-parallel-multi-port-external-lb": f"is refused: {_REPLICAS}",
        "--nnodes": f"is refused: {_ONE_POD}",
        "--node-rank": f"is refused: {_ONE_POD}",
        "--master-addr": f"is refused: {_ONE_POD}",
        "--master-port": f"is refused: {_ONE_POD}",
        "--headless": f"is refused: {_ENDPOINT}",
        # the endpoint
        "--host": f"is refused: {_ENDPOINT}",
        "--port": "is set by the operator; use port of the role",
        "--uds": f"is refused: {_ENDPOINT}",
        "--grpc": f"is refused: {_ENDPOINT}",
        "--root-path": f"is refused: {_ENDPOINT}",
        "--api-key": f"is refused: {_ENDPOINT}",
        "--ssl-keyfile": _TLS,
        "--ssl-certfile": _TLS,
        "--ssl-ca-certs": _CLIENT_CERTIFICATES,
        "--ssl-cert-reqs": _CLIENT_CERTIFICATES,
        "--ssl-ciphers": "is refused: which ciphers are safe is left to OpenSSL",
        "--enable-ssl-refresh": _TLS,
        "--no-enable-ssl-refresh": "is refused: a certificate that was renewed would not be shown",
        "--shutdown-timeout": "is set by the operator; use drainTimeout of the role",
        "--no-enable-request-id-headers": "is refused: the proxy follows requests by these headers",
        # what clients may do
        "--allowed-media-domains": "is set by the operator; use spec.proxy.media.allowedDomains",
        "--allowed-local-media-path": "is refused: clients could read files of the engine",
        "--enable-mm-embeds": "is refused: clients could feed tensors; the engine sets it where the cache needs it",
        "--no-enable-mm-embeds": "is refused: the engine sets it where the encoder cache needs it",
        "--trust-request-mm-kwargs": f"is refused: {_KEYS_APART}",
        "--no-trust-request-mm-kwargs": "is refused: it is the default",
        # everything at once
        "--config": "is refused: a file could carry any flag, unseen; write the flags into args",
    }
)
"""Flag, as vLLM spells it -> why it is refused in spec.engine.args and in the args of a role."""

ALIASES: Final = MappingProxyType(
    {
        "-q": "--quantization",
        "-tp": "--tensor-parallel-size",
        "-pp": "--pipeline-parallel-size",
        "-pcp": "--prefill-context-parallel-size",
        "-dp": "--data-parallel-size",
        "-dpn": "--data-parallel-rank",
        "-dpr": "--data-parallel-start-rank",
        "-dpl": "--data-parallel-size-local",
        "-dpa": "--data-parallel-address",
        "-dpp": "--data-parallel-rpc-port",
        "-dpb": "--data-parallel-backend",
        "-dph": "--data-parallel-hybrid-lb",
        "-dpe": "--data-parallel-external-lb",
        "-dpm": "--data-parallel-multi-port-external-lb",
        "-n": "--nnodes",
        "-r": "--node-rank",
    }
)
"""Short spellings of owned flags."""

_AGREE: Final = "all roles must agree on it; use spec.engine.args"

SHARED_FLAGS: Final = (
    "--allow-deprecated-quantization",
    "--code-revision",
    "--config-format",
    "--default-mm-loras",
    "--enable-tower-connector-lora",
    "--hf-config-path",
    "--hf-overrides",
    "--load-format",
    "--mm-device-do-normalize",
    "--mm-encoder-attn-backend",
    "--mm-encoder-attn-dtype",
    "--mm-encoder-fp8-scale-path",
    "--mm-processor-cache-gb",
    "--mm-processor-cache-type",
    "--mm-shm-cache-max-object-size-mb",
    "--model-class-overrides",
    "--model-impl",
    "--no-allow-deprecated-quantization",
    "--no-enable-tower-connector-lora",
    "--no-mm-device-do-normalize",
    "--no-trust-remote-code",
    "--quantization-config",
    "--tokenizer",
    "--tokenizer-mode",
    "--tokenizer-revision",
    "--trust-remote-code",
    "--video-pruning-method",
    "--video-pruning-rate",
)
"""Flags that change cache keys or embeddings and have no field: allowed for the engine, refused for one role."""

ROLE_FLAGS: Final = MappingProxyType(
    dict(OWNED_FLAGS) | dict.fromkeys(SHARED_FLAGS, f"changes cache keys or embeddings: {_AGREE}")
)
"""Flag -> why it is refused in the args of a role."""

_WRITABLE: Final = "is set by the operator to a writable place; mount a volume there with podTemplate"
_OFFLINE: Final = "is set by the operator; use spec.model.source.huggingFace.offline"
_TOKEN: Final = "is set by the operator; use spec.model.source.huggingFace.tokenSecretRef"  # noqa: S105 (a sentence)
_HUB_CACHE: Final = "is set by the operator; use spec.model.source.huggingFace.cacheClaim"
_SIDE_CHANNEL: Final = "is set by the operator to the pod's address"

OWNED_ENV: Final = MappingProxyType(
    {
        "HF_HUB_OFFLINE": _OFFLINE,
        "TRANSFORMERS_OFFLINE": _OFFLINE,
        "HF_TOKEN": _TOKEN,
        "HUGGING_FACE_HUB_TOKEN": _TOKEN,
        "HF_HOME": _HUB_CACHE,
        "HF_HUB_CACHE": _HUB_CACHE,
        "HUGGINGFACE_HUB_CACHE": _HUB_CACHE,
        "TRANSFORMERS_CACHE": _HUB_CACHE,
        "HOME": _WRITABLE,
        "USER": "is set by the operator: the pod's uid has no entry in the image's passwd",
        "LOGNAME": "is set by the operator: the pod's uid has no entry in the image's passwd",
        "XDG_CACHE_HOME": _WRITABLE,
        "VLLM_CACHE_ROOT": _WRITABLE,
        "VLLM_CONFIG_ROOT": _WRITABLE,
        "TORCHINDUCTOR_CACHE_DIR": _WRITABLE,
        "TRITON_CACHE_DIR": _WRITABLE,
        "NUMBA_CACHE_DIR": _WRITABLE,
        "EPD_POD_UID": "is set by the operator to the pod's uid",
        "VLLM_API_KEY": "is refused: the proxy speaks to the engines without a key; clients use the proxy",
        "VLLM_EC_SIDE_CHANNEL_HOST": _SIDE_CHANNEL,
        "VLLM_EC_SIDE_CHANNEL_PORT": _SIDE_CHANNEL,
        "VLLM_NIXL_SIDE_CHANNEL_HOST": _SIDE_CHANNEL,
        "VLLM_NIXL_SIDE_CHANNEL_PORT": _SIDE_CHANNEL,
        "VLLM_MOONCAKE_BOOTSTRAP_PORT": _SIDE_CHANNEL,
        "VLLM_MM_HASHER_ALGORITHM": "is set by the operator; use spec.encoderCache.hashAlgorithm",
        "VLLM_USE_V2_MODEL_RUNNER": "is set by the operator: encoders need the runner that fits their device",
    }
)
"""Environment variable -> why it is refused in env and in a podTemplate."""


@dataclass(frozen=True)
class Violation:
    """A flag that may not stand where it stands.

    Attributes:
        index: Its position in the list of args.
        flag: The owned flag in vLLM's spelling.
        reason: Why it is refused and what to use instead.
    """

    index: int
    flag: str
    reason: str


_VALUE_FLAG: Final = "--mm-processor-cache-gb"


def _name(arg: str) -> str:
    """Return the option that a word names, as vLLM's parser reads it (vllm/utils/argparse_utils.py `parse_args`).

    `--a_b.c_d+=v` -> `--a-b`: the part before `=`, without the path into a JSON value, underscores as dashes.
    """
    return arg.split("=", 1)[0].split(".", 1)[0].replace("_", "-")


def _matches(name: str, refused: Iterable[str]) -> str | None:
    """Return the refused flag that argparse would or could take `name` for, exact spellings first.

    An abbreviation that fits a refused flag counts even where vLLM knows other flags that it fits too: the parser
    then calls it ambiguous, so no working command is refused.
    """
    if name in refused:
        return name
    if name in ALIASES:
        return ALIASES[name]
    if name.startswith("--"):
        return next((flag for flag in refused if len(name) > len("--") and flag.startswith(name)), None)
    # one dash: `-qawq` is `-q awq`; `-t` abbreviates `-tp`; and a mistaken `-tp2` is better named than left to crash
    for short, flag in ALIASES.items():
        stuck = name.startswith(short) and (len(short) == len("-q") or name[len(short) :].isdigit())
        if stuck or (len(name) > 1 and short.startswith(name)):
            return flag
    return None


def find_owned(args: Sequence[str], *, role: bool = False) -> tuple[Violation, ...]:
    """Return the flags in `args` that belong to the operator, in every spelling that vLLM's parser takes.

    Args:
        args: Words of a command line, one flag or value each.
        role: The args are those of one role: flags on which all roles must agree are refused too.
    """
    refused = ROLE_FLAGS if role else OWNED_FLAGS
    found = []
    for index, arg in enumerate(args):
        if not arg.startswith("-"):
            continue
        if flag := _matches(_name(arg), refused):
            found.append(Violation(index=index, flag=flag, reason=refused[flag]))
    return tuple(found)


def disables_content_keys(args: Sequence[str]) -> int | None:
    """Return the index of a `--mm-processor-cache-gb` of zero in `args`, if any.

    Without its processor cache an encoder names items by request instead of by content, so that nothing it writes is
    ever read (vllm/renderers/base.py).
    """
    for index, arg in enumerate(args):
        name = _name(arg)
        if not (len(name) > len("--mm-processor-cache-") and _VALUE_FLAG.startswith(name)):
            continue
        value = arg.split("=", 1)[1] if "=" in arg else next(iter(args[index + 1 : index + 2]), "")
        try:
            if float(value) == 0:
                return index
        except ValueError:
            continue
    return None
