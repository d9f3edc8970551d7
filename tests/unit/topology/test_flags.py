from __future__ import annotations

import json
from typing import Any

import pytest

from epd.api.names import Role
from epd.connector import settings
from epd.topology.arguments import last_value
from epd.topology.canonical import canonical_json
from epd.topology.flags import COMMAND, ec_role, ec_transfer_config, engine_args, literal
from epd.topology.model_version import model_version, record_inputs
from unit.topology.objects import ABSENT, epd

E, PD = Role.ENCODE, Role.PREFILL_DECODE
EXAMPLE: dict[str, Any] = {"encoderCache.connector": "Example"}
CPU: dict[str, Any] = {"encode.resources": ABSENT, "prefillDecode.resources": ABSENT}


def args(changes: dict[str, Any], role: Role = PD) -> list[str]:
    return engine_args(epd(changes), role)


def value(args: list[str], flag: str) -> str | None:
    return args[args.index(flag) + 1] if flag in args else None


def test_command() -> None:
    assert COMMAND == ("vllm", "serve")


def test_prefill_decode_in_full() -> None:
    given = epd()
    config = {
        "ec_connector": "ManagedECConnector",
        "ec_connector_module_path": "epd_connector.managed",
        "ec_connector_extra_config": {
            "root": "/var/lib/epd/encoder-cache",
            "version": model_version(given.spec),
            "claim": "ai/qwen-vl-encoder-cache",
            "inputs": record_inputs(given.spec),
            "min_idle_seconds": 1800,
        },
        "ec_role": "ec_consumer",
    }
    assert engine_args(given, PD) == [
        *("Qwen/Qwen2.5-VL-3B-Instruct", "--host", "0.0.0.0", "--port", "8000"),
        *("--served-model-name", "Qwen/Qwen2.5-VL-3B-Instruct"),
        *("--revision", "66285546d2b821cf421d4f5eb2576359d3770cd3"),
        *("--mm-hasher-algorithm", "blake3", "--allowed-media-domains", "data-urls-only.invalid"),
        *("--ec-transfer-config", canonical_json(config)),
        *("--shutdown-timeout", "600", "--enable-request-id-headers"),
    ]


def test_encode_adds_what_makes_an_encoder() -> None:
    prefill = [word.replace("ec_consumer", "ec_producer").replace("600", "60") for word in args({})]
    assert args({}, E) == [
        *prefill,
        *("--mm-encoder-only", "--no-enable-prefix-caching", "--max-num-batched-tokens", "114688"),
        *("--gpu-memory-utilization", "0.01"),
    ]


@pytest.mark.parametrize(
    ("path", "given", "words"),
    [
        ("model.servedNames", ["a/b", "c"], ["--served-model-name", "a/b", "c"]),
        ("model.dtype", "float32", ["--dtype", "float32"]),
        ("model.quantization", "awq", ["--quantization", "awq"]),
        ("model.maxModelLen", 2048, ["--max-model-len", "2048"]),
        (
            "model.mediaLimits",
            {"video": {"count": 1}, "image": 8},
            ["--limit-mm-per-prompt", '{"image":8,"video":{"count":1}}'],
        ),
        ("model.processorKwargs", {"max_pixels": 9}, ["--mm-processor-kwargs", '{"max_pixels":9}']),
        ("model.mediaIOKwargs", {"video": {"num_frames": 8}}, ["--media-io-kwargs", '{"video":{"num_frames":8}}']),
        ("encoderCache.hashAlgorithm", "SHA256", ["--mm-hasher-algorithm", "sha256"]),
        ("prefillDecode.port", 9000, ["--port", "9000"]),
        ("prefillDecode.parallelism", {"tensor": 2}, ["--tensor-parallel-size", "2"]),
        ("prefillDecode.drainTimeout", "20s", ["--shutdown-timeout", "20"]),
        (
            "engine.tls",
            {"secretName": "engines"},
            [
                *("--ssl-certfile", "/var/lib/epd/engine-tls/tls.crt", "--ssl-keyfile"),
                *("/var/lib/epd/engine-tls/tls.key", "--enable-ssl-refresh"),
            ],
        ),
        (
            "proxy.media",
            {"allowedDomains": ["a.example", "B.example"]},  # vLLM compares with names in lower case
            ["--allowed-media-domains", "a.example", "b.example"],
        ),
    ],
)
def test_a_field_becomes_a_flag(path: str, given: Any, words: list[str]) -> None:
    rendered = args({path: given})
    start = rendered.index(words[0])
    assert rendered[start : start + len(words)] == words
    assert rendered[start + len(words)].startswith("--")


@pytest.mark.parametrize("domains", [["*"], ["a.example", "*.b.example"]])
def test_engines_know_no_wildcards(domains: list[str]) -> None:
    assert "--allowed-media-domains" not in args({"proxy.media.allowedDomains": domains})


def test_weights_from_a_claim() -> None:
    rendered = args({"model.source": {"persistentVolumeClaim": {"claimName": "weights"}}})
    assert rendered[0] == "/var/lib/epd/model"
    assert value(rendered, "--served-model-name") == "Qwen/Qwen2.5-VL-3B-Instruct"
    assert "--revision" not in rendered


def test_the_users_flags_come_last() -> None:
    rendered = args({"engine.args": ["--max-num-seqs", "8"], "prefillDecode.args": ["--max-num-seqs", "16"]})
    assert rendered[-4:] == ["--max-num-seqs", "8", "--max-num-seqs", "16"]


def test_the_kubelet_expands_nothing_of_ours() -> None:
    assert value(args({"model.processorKwargs": {"a": "$(HOME)"}}), "--mm-processor-kwargs") == '{"a":"$$(HOME)"}'
    assert literal("$$(A)") == "$$$$(A)"


@pytest.mark.parametrize(
    ("changes", "budget"),
    [
        (CPU, "8192"),
        (CPU | {"prefillDecode.args": ["--max-num-batched-tokens", "16384"]}, "16384"),
        (CPU | {"prefillDecode.args": ["--max_num_batched_tokens=16384"]}, "16384"),
        (CPU | {"prefillDecode.args": ["--max-num-batched-tokens", "1024"]}, "8192"),
        (CPU | {"prefillDecode.args": ["--max-num-batched-tokens", "many"]}, "8192"),
        (CPU | {"prefillDecode.args": ["--max-num-batched-tokens", "16k"]}, "16000"),
        (CPU | {"prefillDecode.args": ["--max-num-batched-tokens", "16K"]}, "16384"),
        (CPU | {"prefillDecode.args": ["--max-num-batched-tokens", "0.1m"]}, "100000"),
        (CPU | {"prefillDecode.args": ["--max-num-batched-tokens", "0.1M"]}, "8192"),
        (CPU | {"engine.args": ["--max-num-batched-tokens", "16384"]}, "16384"),
        ({"prefillDecode.args": ["--max-num-batched-tokens", "200000"]}, "200000"),
    ],
)
def test_an_encoder_takes_what_the_prefill_side_takes(changes: dict[str, Any], budget: str) -> None:
    assert last_value(args(changes, E), "--max-num-batched-tokens") == budget


def test_what_engines_share_is_no_batch_and_no_memory_for_encoders() -> None:
    """Of a flag that stands twice vLLM takes the last one."""
    shared = ["--max-num-batched-tokens", "2048", "--gpu-memory-utilization", "0.95", "--enable-prefix-caching"]
    both = {"engine.args": shared, "prefillDecode.args": ["--max-num-batched-tokens", "4096"]}
    assert args(both, E)[-6:] == [
        *("--mm-encoder-only", "--no-enable-prefix-caching", "--max-num-batched-tokens", "114688"),
        *("--gpu-memory-utilization", "0.01"),
    ]
    assert last_value(args(both, PD), "--gpu-memory-utilization") == "0.95"
    own = both | {"encode.args": ["--gpu-memory-utilization", "0.2", "--max-num-batched-tokens", "9000"]}
    assert last_value(args(own, E), "--gpu-memory-utilization") == "0.2"
    assert last_value(args(own, E), "--max-num-batched-tokens") == "9000"


@pytest.mark.parametrize(
    ("changes", "eager", "utilization"),
    [
        (CPU, True, None),
        ({}, False, "0.01"),
        ({"encode.resources": {"limits": {"amd.com/gpu": 1}}}, False, "0.01"),
        ({"encode.resources": {"limits": {"gpu.intel.com/xe": 1}}}, False, None),
    ],
)
def test_flags_by_device(changes: dict[str, Any], eager: bool, utilization: str | None) -> None:
    rendered = args(changes, E)
    assert ("--enforce-eager" in rendered, value(rendered, "--gpu-memory-utilization")) == (eager, utilization)


@pytest.mark.parametrize("connector", ["Managed", "Example"])
def test_roles_of_the_transfer(connector: str) -> None:
    def rendered(changes: dict[str, Any], role: Role) -> Any:
        config = ec_transfer_config(epd(changes | {"encoderCache.connector": connector}), role)
        return config and config["ec_role"]

    assert [rendered({}, role) for role in (E, PD)] == ["ec_producer", "ec_consumer"]
    assert rendered({"encode": ABSENT}, PD) == "ec_both"
    assert ec_role(epd({"encode": ABSENT}).spec, PD) == "ec_both"


def test_the_managed_connector_and_its_settings() -> None:
    """The user's go beside ours; ours win, whatever a spec that escaped the checks says."""
    given = epd(
        {
            "encoderCache.volume": {"persistentVolumeClaim": {"claimName": "ec", "subPath": "a"}},
            "encoderCache.extraConfig": {"local_bytes": 7, "root": "/tmp"},
            "encoderCache.garbageCollection": {"minIdle": "1h30m"},
        }
    )
    assert ec_transfer_config(given, E) == {
        "ec_connector": "ManagedECConnector",
        "ec_connector_module_path": "epd_connector.managed",
        "ec_connector_extra_config": {
            "local_bytes": 7,
            "root": "/var/lib/epd/encoder-cache",
            "version": model_version(given.spec),
            "claim": "ai/ec",
            "inputs": record_inputs(given.spec),
            "min_idle_seconds": 5400,
        },
        "ec_role": "ec_producer",
    }


def test_the_settings_fit_into_one_word_of_a_command_line() -> None:
    """128 KiB (Linux, MAX_ARG_STRLEN), whatever the user's own words are."""
    words = ["--unknown"] + ["$" * 4096] * 255
    huge = {"engine.args": words, "encode.args": words, "model.processorKwargs": {"a": "$" * 100_000}}
    config = value(args(huge, E), "--ec-transfer-config")
    assert len(config or "") < 128 * 1024


def test_no_encoder_cache_is_no_flag() -> None:
    assert ec_transfer_config(epd({"encode": ABSENT, "encoderCache": ABSENT}), PD) is None
    assert "--ec-transfer-config" not in args({"encode": ABSENT, "encoderCache": ABSENT})


def test_the_example_connectors_directory_is_ours() -> None:
    given = epd(EXAMPLE | {"encoderCache.extraConfig": {"shared_storage_path": "/tmp", "a": 1}})
    store = f"/var/lib/epd/encoder-cache/{model_version(given.spec)}"
    assert ec_transfer_config(given, PD) == {
        "ec_connector": "ECExampleConnector",
        "ec_connector_extra_config": {"shared_storage_path": store, "a": 1},
        "ec_role": "ec_consumer",
    }


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"encoderCache.volume": ABSENT}, {}),
        ({}, {"shared_storage_path": "/var/lib/epd/encoder-cache/VERSION"}),
        ({"encoderCache.extraConfig": {"shared_storage_path": "/x"}}, {"shared_storage_path": "/x"}),
    ],
)
def test_custom_connector(changes: dict[str, Any], place: dict[str, str]) -> None:
    custom = {"encoderCache.connector": "Custom", "encoderCache.custom": {"module": "acme.ec", "class": "Redis"}}
    given = epd(custom | changes)
    expected = {key: text.replace("VERSION", model_version(given.spec)) for key, text in place.items()}
    assert ec_transfer_config(given, E) == {
        "ec_connector": "Redis",
        "ec_connector_module_path": "acme.ec",
        "ec_connector_extra_config": expected,
        "ec_role": "ec_producer",
    }


def test_json_flags_are_json() -> None:
    config = value(args({"encoderCache.extraConfig": {"ä": [1, {"b": None}]}}), "--ec-transfer-config")
    assert json.loads(config or "")["ec_connector_extra_config"]["ä"] == [1, {"b": None}]


@pytest.mark.parametrize("release", ["0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0"])
def test_every_release_gets_flags_that_it_has(release: str) -> None:
    """`--mm-encoder-only` is needed on 0.28 only; removed keys of the transfer config appear nowhere."""
    rendered = args(EXAMPLE | {"engine.image": f"vllm:v{release}"}, E)
    assert "--mm-encoder-only" in rendered
    assert set(json.loads(value(rendered, "--ec-transfer-config") or "")) == {
        "ec_connector",
        "ec_connector_extra_config",
        "ec_role",
    }


def test_the_connector_reads_what_is_written_for_it() -> None:
    config = ec_transfer_config(epd({"encoderCache.extraConfig": {"local_bytes": 7, "io_threads": 2}}), PD) or {}
    found = settings.read(config["ec_connector_extra_config"])
    assert (found.root, found.version) == ("/var/lib/epd/encoder-cache", model_version(epd().spec))
    assert (found.claim, found.inputs) == ("ai/qwen-vl-encoder-cache", record_inputs(epd().spec))
    assert (found.min_idle_seconds, found.local_bytes, found.io_threads) == (1800, 7, 2)
