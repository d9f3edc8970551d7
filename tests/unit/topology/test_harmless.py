from __future__ import annotations

import pytest

from epd.topology.harmless import FLAGS, LORA_FLAGS, VARIABLES, flag_is_harmless, variable_is_harmless

CHANGES_EMBEDDINGS = [
    "--attention-backend",
    "--compilation-config",
    "--enable-tower-connector-lora",
    "--hf-overrides",
    "--load-format",
    "--mm-encoder-attn-backend",
    "--mm-encoder-tp-mode",
    "--mm-processor-device",
    "--mm-tensor-ipc",
    "--model-impl",
    "--quantization-config",
    "--tokenizer",
    "--trust-remote-code",
    "--video-pruning-rate",
    "--worker-cls",
    "--not-known-yet",
]


@pytest.mark.parametrize("flag", CHANGES_EMBEDDINGS)
def test_what_may_change_an_embedding_is_not_harmless(flag: str) -> None:
    assert not flag_is_harmless(flag, tower_lora=False)


@pytest.mark.parametrize("flag", ["--max-num-seqs", "--gpu-memory-utilization", "--enable-log-requests"])
@pytest.mark.parametrize("tower_lora", [True, False])
def test_batching_memory_and_logs_are_harmless(flag: str, tower_lora: bool) -> None:
    assert flag_is_harmless(flag, tower_lora=tower_lora)


@pytest.mark.parametrize("flag", sorted(LORA_FLAGS))
def test_adapters_are_harmless_until_they_act_in_the_tower(flag: str) -> None:
    assert flag_is_harmless(flag, tower_lora=False)
    assert not flag_is_harmless(flag, tower_lora=True)


def test_lists_hold_plain_names() -> None:
    assert all(flag.startswith("--") and "_" not in flag and not flag.startswith("--no-") for flag in FLAGS)
    assert not FLAGS & LORA_FLAGS
    assert all(name.replace("_", "").isalnum() for name in VARIABLES)


@pytest.mark.parametrize("name", ["VLLM_LOGGING_LEVEL", "OMP_NUM_THREADS", "HTTPS_PROXY"])
def test_harmless_variables(name: str) -> None:
    assert variable_is_harmless(name)


@pytest.mark.parametrize("name", ["VLLM_ROCM_USE_AITER", "VLLM_PLUGINS", "HF_ENDPOINT", "VLLM_BATCH_INVARIANT", "X"])
def test_other_variables_are_not(name: str) -> None:
    assert not variable_is_harmless(name)
