"""An engine core of vLLM's over pretended workers, and requests for it. Steps are the test's."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from vllm.config import ECTransferConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.multimodal.inputs import (
    MultiModalBatchedField,
    MultiModalFeatureSpec,
    MultiModalFieldElem,
    MultiModalKwargsItem,
    PlaceholderRange,
)
from vllm.sampling_params import SamplingParams
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.core import EngineCore
from vllm.v1.request import Request

from engine.pretended import PretendedExecutor, Script, embedding

MODEL = Path(__file__).parents[1] / "models" / "tinyvlm" / "model"
VERSION = "v1-tiny-0123456789ab"
IMAGE = 6
"""The model's placeholder token."""
LONG = 30.0
"""Seconds after which a test gives up: far above anything that is waited for."""


@dataclass
class Answer:
    """What a client would get."""

    tokens: list[int] = field(default_factory=list)
    reason: str | None = None
    items: dict[str, Any] | None = None


def item(identifier: str, offset: int, rows: int, *, pixels: bool = True) -> MultiModalFeatureSpec:
    """An image of `rows` embeddings at a place of the prompt; without pixels only its grid is there."""
    values = {"image_grid_thw": torch.tensor([1, 2, rows * 2])}
    if pixels:
        values["pixel_values"] = torch.zeros(rows * 4, 8)
    data = {key: MultiModalFieldElem(data=value, field=MultiModalBatchedField()) for key, value in values.items()}
    return MultiModalFeatureSpec(
        data=MultiModalKwargsItem(data),
        modality="image",
        identifier=identifier,
        mm_position=PlaceholderRange(offset=offset, length=rows),
        mm_hash=identifier,
    )


def publish(root: Path, engine: Any, identifier: str, rows: int, **other: Any) -> Path:
    """Put an entry of the pretended encoder on disk, or one that differs in width, dtype or version; return where."""
    from epd_connector.loading import DTYPES
    from epd_connector.store import Shape, Store

    dtype = other.get("dtype", engine.config.model_config.dtype)
    tensor = embedding(identifier, rows, other.get("width", engine.script.width), dtype)
    store = Store(str(root), other.get("version", VERSION), stamp_seconds=0)
    (root / other.get("version", VERSION)).mkdir(exist_ok=True)
    shape = Shape(dtype=DTYPES[dtype], rows=rows, width=tensor.shape[1])
    store.publish(identifier, memoryview(tensor.view(torch.uint8).reshape(-1).numpy()), shape)
    return Path(store.path(identifier))


class Engine:
    """An engine core in this process, its busy loop turned by the test."""

    def __init__(
        self,
        role: str,
        root: Path,
        *,
        script: Script | None = None,
        extra: dict[str, Any] | None = None,
        connector: str = "ManagedECConnector",
        module: str = "epd_connector.managed",
        asynchronous: bool = False,
        prefix_caching: bool = False,
        tokens: int = 256,
        length: int = 512,
        version: str = VERSION,
        model: Path = MODEL,
    ) -> None:
        self.script = script or Script()
        arguments = EngineArgs(
            model=str(model),
            enforce_eager=True,
            max_model_len=length,
            max_num_seqs=8,
            max_num_batched_tokens=max(tokens, 512) if role == "ec_producer" else tokens,
            enable_prefix_caching=prefix_caching,
            ec_transfer_config=ECTransferConfig(
                ec_connector=connector,
                ec_connector_module_path=module,
                ec_role=role,
                ec_connector_extra_config={
                    "root": str(root),
                    "version": version,
                    "claim": "default/cache",
                    "inputs": {"model": "tiny"},
                    "min_idle_seconds": 1800,
                    "local_bytes": 64 << 20,
                    **(extra or {}),
                },
            ),
        )
        self.config = arguments.create_engine_config()
        self.config.scheduler_config.async_scheduling = asynchronous
        script_of_engine = self.script

        class Executor(PretendedExecutor):
            script = script_of_engine

        self.core = EngineCore(self.config, Executor, log_stats=True)
        self.connector = self.core.scheduler.ec_connector
        self.answers: dict[str, Answer] = {}
        self.counts: dict[str, Any] = {}
        self.may_be_wrong: list[str] = []
        self.may_raise: set[str] = set()
        self._closed = False

    def ask(
        self, request: str, *items: MultiModalFeatureSpec, tokens: int = 64, output: int = 4, lora: Any = None
    ) -> Answer:
        """Add a request of so many prompt tokens; its items' places are filled with placeholders."""
        prompt = [10 + position % 50 for position in range(tokens)]
        for one in items:
            place = one.mm_position
            prompt[place.offset : place.offset + place.length] = [IMAGE] * place.length
        wire = EngineCoreRequest(
            request_id=request,
            prompt_token_ids=prompt,
            mm_features=list(items),
            sampling_params=SamplingParams(max_tokens=output, ignore_eos=True),
            pooling_params=None,
            arrival_time=time.time(),
            lora_request=lora,
            cache_salt=None,
            data_parallel_rank=None,
        )
        self.core.add_request(Request.from_engine_core_request(wire, self.core.request_block_hasher))
        return self.answers.setdefault(request, Answer())

    def step(self) -> None:
        """One turn of the busy loop, as `EngineCoreProc._process_engine_step`."""
        outputs, executed = self.core.step_fn()
        for output in (outputs or {}).values():
            self._take(output)
        if not executed:
            time.sleep(0.001)

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Turn the loop until something holds, else until nothing is left to do."""
        began = time.monotonic()
        while not until() if until else (self.core.scheduler.has_requests() or self.core.batch_queue):
            self.step()
            assert time.monotonic() - began < LONG, "the engine does not come to an end"

    @property
    def side(self) -> Any:
        """The connector's deciding half."""
        return self.connector._scheduler

    @property
    def raised(self) -> set[str]:
        """Hooks that raised, in the scheduler or in a worker."""
        connectors = [self.connector, *(worker.connector for worker in self.core.model_executor.ranks)]
        return {hook for connector in connectors for hook in getattr(connector, "raised", ())}

    def settle(self) -> None:
        """Wait until nothing is held any more and what was given back is free."""
        self.until(lambda: self.side.held == 0 and self.connector._shared.copies.used_bytes <= 4096)

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for what threads of the connector do, the engine's loop not turning."""
        began = time.monotonic()
        while not holds():
            time.sleep(0.001)
            assert time.monotonic() - began < LONG, "it does not happen"

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.core.scheduler.shutdown()  # as EngineCore.shutdown, without its second of collecting garbage
            self.core.model_executor.shutdown()

    def _take(self, output: Any) -> None:
        for one in output.outputs:
            answer = self.answers[one.request_id]
            answer.tokens += one.new_token_ids
            if one.finish_reason is not None:
                answer.reason = str(one.finish_reason)
                answer.items = one.ec_transfer_params
        stats = output.scheduler_stats
        if stats is not None and stats.ec_connector_stats:
            from epd_connector.counters import merge

            merge(self.counts, stats.ec_connector_stats)
