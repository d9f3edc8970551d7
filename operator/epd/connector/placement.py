"""Where a worker is: its device, and its number among those that run the connector. Asks vLLM, changes nothing."""

# vLLM and torch are not there when types are checked.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def device() -> torch.device:
    """Return the device of this worker's encoder cache."""
    from vllm.platforms import current_platform

    if current_platform.is_cuda_alike():  # bare "cuda" is device 0 in every worker
        return torch.device(current_platform.device_type, current_platform.current_device())
    return torch.device(current_platform.device_type)


def rank() -> int:
    """Return the number of this worker among those that run the connector: the first pipeline stage's."""
    from vllm.distributed import parallel_state

    try:
        tensor = parallel_state.get_tp_group()
        context = parallel_state.get_pcp_group()
    except (AssertionError, AttributeError):
        return 0
    return int(context.rank_in_group * tensor.world_size + tensor.rank_in_group)


def synchronizing() -> Callable[[], AbstractContextManager[Any]]:
    """Return what allows a wait for the device where vLLM looks for them (VLLM_GPU_SYNC_CHECK)."""
    try:
        from vllm.utils.gpu_sync_debug import gpu_sync_allowed
    except ImportError:
        return nullcontext
    allowed: Callable[[], AbstractContextManager[Any]] = gpu_sync_allowed
    return allowed
