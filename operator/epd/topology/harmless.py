"""Engine flags and environment variables that can't change an embedding, each group with its reason.

What is not listed here starts a new cache version: a needless one costs encoding time, a missed one serves wrong
embeddings. So kernels, numerics, weights, processors and plug-ins stay off these lists. Pure; decides about one name.

Source of the names: `vllm/engine/arg_utils.py`, `vllm/entrypoints/launchers/cli_args.py` and `vllm/envs.py` of 0.32.
"""

from __future__ import annotations

from typing import Final

TOWER_LORA_FLAG: Final = "--enable-tower-connector-lora"
"""With it, adapters also act in the vision or audio tower, and then `LORA_FLAGS` are not harmless."""

LORA_FLAGS: Final = frozenset(
    {
        "--enable-lora",
        "--fully-sharded-loras",
        "--lora-dtype",
        "--lora-modules",
        "--max-cpu-loras",
        "--max-lora-rank",
        "--max-loras",
        "--specialize-active-lora",
    }
)
"""Adapters of the language model, which sees embeddings only after they were made."""

_FLAGS_BY_REASON: Final[dict[str, frozenset[str]]] = {
    "how many requests and tokens a step takes; an item is always encoded whole": frozenset(
        {
            "--async-scheduling",
            "--disable-chunked-mm-input",
            "--enable-chunked-prefill",
            "--long-prefill-token-threshold",
            "--max-num-active-seqs",
            "--max-num-batched-tokens",
            "--max-num-queued-reqs",
            "--max-num-queued-tokens",
            "--max-num-scheduled-tokens",
            "--max-num-seqs",
            "--prefill-schedule-interval",
            "--scheduler-reserve-full-isl",
            "--scheduling-policy",
            "--stream-interval",
        }
    ),
    "how much memory is used, and where; values stay the same": frozenset(
        {
            "--block-size",
            "--cpu-offload-gb",
            "--enable-prefix-caching",
            "--enable-sleep-mode",
            "--gpu-memory-utilization",
            "--kv-cache-memory-bytes",
            "--kv-offloading-backend",
            "--kv-offloading-size",
            "--num-gpu-blocks-override",
            "--prefix-caching-hash-algo",
            "--sleep-mode-backend",
        }
    ),
    "attention of the language model, after the encoder": frozenset(
        {
            "--disable-cascade-attn",
            "--disable-hybrid-kv-cache-manager",
            "--disable-sliding-window",
            "--kv-cache-dtype",
            "--max-model-len",
            "--spec-method",
            "--spec-model",
            "--spec-tokens",
            "--speculative-config",
        }
    ),
    "experts and ranks of the language model": frozenset(
        {
            "--all2all-backend",
            "--data-parallel-address",
            "--data-parallel-backend",
            "--data-parallel-external-lb",
            "--data-parallel-hybrid-lb",
            "--data-parallel-rank",
            "--data-parallel-rpc-port",
            "--data-parallel-size",
            "--data-parallel-size-local",
            "--data-parallel-start-rank",
            "--distributed-executor-backend",
            "--distributed-timeout-seconds",
            "--enable-eplb",
            "--enable-expert-parallel",
            "--eplb-config",
            "--expert-placement-strategy",
        }
    ),
    "how many items a prompt may hold and how they are queued, not what is made of one": frozenset(
        {
            "--allowed-local-media-path",
            "--allowed-media-domains",
            "--enable-mm-embeds",
            "--limit-mm-per-prompt",
            "--mm-processor-cache-gb",
            "--mm-processor-cache-type",
            "--mm-shm-cache-max-object-size-mb",
            "--renderer-num-workers",
            "--skip-mm-profiling",
        }
    ),
    "text around the items, and text that is generated": frozenset(
        {
            "--chat-template",
            "--chat-template-content-format",
            "--default-chat-template-kwargs",
            "--enable-auto-tool-choice",
            "--exclude-tools-when-tool-choice-none",
            "--generation-config",
            "--interleave-mm-strings",
            "--logprobs-mode",
            "--max-logprobs",
            "--override-generation-config",
            "--reasoning-config",
            "--reasoning-parser",
            "--response-role",
            "--return-tokens-as-token-ids",
            "--structured-outputs-config",
            "--tool-call-parser",
            "--tool-server",
            "--trust-request-chat-template",
        }
    ),
    "logs, traces and metrics": frozenset(
        {
            "--aggregate-engine-logging",
            "--collect-detailed-traces",
            "--cudagraph-metrics",
            "--custom-histogram-buckets",
            "--disable-access-log-for-endpoints",
            "--disable-log-stats",
            "--disable-uvicorn-access-log",
            "--enable-layerwise-nvtx-tracing",
            "--enable-log-deltas",
            "--enable-log-outputs",
            "--enable-log-requests",
            "--enable-logging-iteration-details",
            "--enable-mfu-metrics",
            "--enable-per-request-metrics",
            "--enable-prompt-tokens-details",
            "--enable-server-load-tracking",
            "--kv-cache-metrics",
            "--kv-cache-metrics-sample",
            "--log-config-file",
            "--log-error-stack",
            "--logging-config",
            "--max-log-len",
            "--otlp-traces-endpoint",
            "--show-hidden-metrics-for-version",
            "--uvicorn-log-level",
        }
    ),
    "how the HTTP server listens and stops": frozenset(
        {
            "--allow-credentials",
            "--allowed-headers",
            "--allowed-methods",
            "--allowed-origins",
            "--api-key",
            "--api-server-count",
            "--disable-fastapi-docs",
            "--enable-force-include-usage",
            "--enable-offline-docs",
            "--enable-request-id-headers",
            "--enable-tokenizer-info-endpoint",
            "--h11-max-header-count",
            "--h11-max-incomplete-event-size",
            "--host",
            "--port",
            "--root-path",
            "--served-model-name",
            "--shutdown-timeout",
            "--sse-keep-alive-interval",
            "--ssl-ca-certs",
            "--ssl-cert-reqs",
            "--ssl-certfile",
            "--ssl-ciphers",
            "--ssl-keyfile",
        }
    ),
    "how weights get to the device, not which ones": frozenset(
        {
            "--download-dir",
            "--max-parallel-loading-workers",
            "--numa-bind",
            "--numa-bind-cpus",
            "--numa-bind-nodes",
            "--safetensors-load-strategy",
            "--safetensors-prefetch-block-size",
            "--safetensors-prefetch-num-threads",
            "--use-tqdm-on-load",
        }
    ),
}

FLAGS: Final = frozenset[str]().union(*_FLAGS_BY_REASON.values())

_VARIABLES_BY_REASON: Final[dict[str, frozenset[str]]] = {
    "logs and telemetry": frozenset(
        {
            "DO_NOT_TRACK",
            "NCCL_DEBUG",
            "NCCL_DEBUG_SUBSYS",
            "PYTHONUNBUFFERED",
            "TZ",
            "VLLM_CONFIGURE_LOGGING",
            "VLLM_DISABLE_LOG_LOGO",
            "VLLM_DO_NOT_TRACK",
            "VLLM_LOGGING_COLOR",
            "VLLM_LOGGING_CONFIG_PATH",
            "VLLM_LOGGING_LEVEL",
            "VLLM_LOGGING_PREFIX",
            "VLLM_LOGGING_STREAM",
            "VLLM_LOG_BATCHSIZE_INTERVAL",
            "VLLM_LOG_STATS_INTERVAL",
            "VLLM_NO_USAGE_STATS",
            "VLLM_USAGE_SOURCE",
            "VLLM_USAGE_STATS_SERVER",
        }
    ),
    "memory and processor cores": frozenset(
        {
            "MALLOC_ARENA_MAX",
            "OMP_NUM_THREADS",
            "PYTORCH_ALLOC_CONF",
            "PYTORCH_CUDA_ALLOC_CONF",
            "PYTORCH_HIP_ALLOC_CONF",
            "TOKENIZERS_PARALLELISM",
            "VLLM_CPU_KVCACHE_SPACE",
            "VLLM_CPU_NUM_OF_RESERVED_CPU",
            "VLLM_CPU_OMP_THREADS_BIND",
            "VLLM_MEDIA_LOADING_THREAD_COUNT",
            "VLLM_MQ_MAX_CHUNK_BYTES_MB",
        }
    ),
    "timeouts": frozenset(
        {
            "VLLM_AUDIO_FETCH_TIMEOUT",
            "VLLM_ENGINE_READY_TIMEOUT_S",
            "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS",
            "VLLM_HTTP_TIMEOUT_KEEP_ALIVE",
            "VLLM_IMAGE_FETCH_TIMEOUT",
            "VLLM_MEDIA_FETCH_MAX_RETRIES",
            "VLLM_VIDEO_FETCH_TIMEOUT",
            "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS",
        }
    ),
    "how bytes get to the pod": frozenset(
        {
            "GLOO_SOCKET_IFNAME",
            "HF_HUB_DOWNLOAD_TIMEOUT",
            "HF_HUB_ENABLE_HF_TRANSFER",
            "HF_HUB_ETAG_TIMEOUT",
            "HF_TOKEN",
            "HTTPS_PROXY",
            "HTTP_PROXY",
            "NCCL_IB_DISABLE",
            "NCCL_IB_HCA",
            "NCCL_SOCKET_IFNAME",
            "NO_PROXY",
            "REQUESTS_CA_BUNDLE",
            "SSL_CERT_FILE",
            "UCX_NET_DEVICES",
            "UCX_TLS",
            "VLLM_MEDIA_URL_ALLOW_REDIRECTS",
            "http_proxy",
            "https_proxy",
            "no_proxy",
        }
    ),
}

VARIABLES: Final = frozenset[str]().union(*_VARIABLES_BY_REASON.values())


def flag_is_harmless(option: str, *, tower_lora: bool) -> bool:
    """Tell whether a flag, in its plain form such as `--max-num-seqs`, leaves every embedding as it is."""
    return option in FLAGS or (option in LORA_FLAGS and not tower_lora)


def variable_is_harmless(name: str) -> bool:
    """Tell whether an environment variable leaves every embedding as it is."""
    return name in VARIABLES
