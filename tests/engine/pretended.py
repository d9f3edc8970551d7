"""A model and its workers that exist only as far as the EC connector sees them. Everything above them is vLLM's.

A worker's encoder "encodes" an item into numbers that follow from its identifier; gathering checks each embedding that
a scheduled token needs, and raises where the real model runner would die (v1/worker/utils.py, `_gather_mm_embeddings`).
"""

from __future__ import annotations

import hashlib
import queue
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase, ECConnectorRole
from vllm.distributed.ec_transfer.ec_connector.factory import ECConnectorFactory
from vllm.distributed.ec_transfer.ec_connector.utils import ECOutputAggregator
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import (
    EMPTY_MODEL_RUNNER_OUTPUT,
    ECConnectorOutput,
    ModelRunnerOutput,
    make_empty_encoder_model_runner_output,
)

TOKEN = 9
"""What the model samples, always."""


class EngineDeadError(AssertionError):
    """What the real model runner would not have survived."""


def embedding(identifier: str, rows: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    """What the encoder makes of an item."""
    seed = int.from_bytes(hashlib.sha256(identifier.encode("utf-8", "surrogatepass")).digest()[:4], "little")
    return torch.randn((rows, width), generator=torch.Generator().manual_seed(seed)).to(dtype)


@dataclass
class Script:
    """How a test wants the pretended parts to be; shared by the ranks of one engine."""

    width: int = 256
    blocks: int = 64
    """Of KV cache."""
    ranks: int = 1
    runner: str = "V1"
    loads: list[str] = field(default_factory=list)
    """Identifiers that were in the encoder cache when a step began to compute and were not encoded there."""
    encodes: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Identifiers of embeddings that were not theirs: what the user sees as a wrong colour."""
    gates: dict[int, threading.Event] = field(default_factory=dict)
    """A rank with a gate waits for it before each step that loads."""
    before: dict[int, Any] = field(default_factory=dict)
    """Called by a rank before each step."""


class Worker:
    """One rank: encoder cache, encoder, gathering. Calls the connector as the model runner of its `script` does."""

    def __init__(self, vllm_config: Any, script: Script, rank: int) -> None:
        self.config, self.script, self.rank = vllm_config, script, rank
        self.connector: ECConnectorBase = ECConnectorFactory.create_connector(vllm_config, ECConnectorRole.WORKER)
        if rank:
            self.connector._working._rank = lambda: rank
        self.cache: dict[str, torch.Tensor] = {}
        self.features: dict[str, Any] = {}
        self.tokens: dict[str, int] = {}

    def step(self, output: SchedulerOutput) -> ModelRunnerOutput:
        for request in output.finished_req_ids:
            self.features.pop(request, None)
        for identifier in output.free_encoder_mm_hashes:
            self.cache.pop(identifier, None)
        for new in output.scheduled_new_reqs:
            self.features[new.req_id] = new.mm_features
            self.tokens[new.req_id] = len(new.prompt_token_ids)
        run = self._v1 if self.script.runner == "V1" else self._v2
        return run(output)

    def _v1(self, output: SchedulerOutput) -> ModelRunnerOutput:
        """As v1/worker/gpu_model_runner.py and ec_connector_model_runner_mixin.py."""
        if not self.connector.is_consumer:
            with_output = ECConnectorOutput()
            self._bound_v1(output, with_output, gather=False)
            return make_empty_encoder_model_runner_output(output)  # the connector's output is lost, as there
        if not output.total_num_scheduled_tokens:
            return EMPTY_MODEL_RUNNER_OUTPUT
        told = ECConnectorOutput()
        self._bound_v1(output, told, gather=True)
        return self._sampled(output, told)

    def _bound_v1(self, output: SchedulerOutput, told: ECConnectorOutput, *, gather: bool) -> None:
        connector = self.connector
        connector.bind_connector_metadata(output.ec_connector_metadata)
        if connector.is_producer:
            connector.start_save_caches(encoder_cache=self.cache)
        if connector.is_consumer:
            connector.start_load_caches(self.cache)
        try:
            for identifier, tensor in self._encoded(output):
                self.cache[identifier] = tensor
                connector.save_caches(encoder_cache=self.cache, mm_hash=identifier)
            if gather:
                self._gather(output)
        finally:
            told.finished_sending, told.finished_recving = connector.get_finished(output.finished_req_ids)
            told.ec_connector_worker_meta = connector.build_connector_worker_meta()
            connector.clear_connector_metadata()

    def _v2(self, output: SchedulerOutput) -> ModelRunnerOutput:
        """As v1/worker/gpu/ec_connector.py, `ActiveECConnector`."""
        connector, told = self.connector, ECConnectorOutput()
        connector.bind_connector_metadata(output.ec_connector_metadata)
        if connector.is_producer:
            connector.start_save_caches(encoder_cache=self.cache)
        if connector.is_consumer:
            connector.start_load_caches(self.cache)
        before = set(self.cache) if connector.is_producer else None
        try:
            for identifier, tensor in self._encoded(output):
                self.cache.setdefault(identifier, tensor)
            if connector.is_consumer:
                self._gather(output)
            if before is not None:
                for identifier in self.cache.keys() - before:
                    connector.save_caches(encoder_cache=self.cache, mm_hash=identifier)
        finally:
            told.finished_sending, told.finished_recving = connector.get_finished(output.finished_req_ids)
            told.ec_connector_stats = connector.get_ec_connector_stats()
            told.ec_connector_worker_meta = connector.build_connector_worker_meta()
            connector.clear_connector_metadata()
        if not connector.is_consumer:
            return ModelRunnerOutput.with_ec_conn_output(make_empty_encoder_model_runner_output(output), told)
        if not output.total_num_scheduled_tokens:
            return ModelRunnerOutput.with_ec_conn_output_only(told)
        return self._sampled(output, told)

    def _encoded(self, output: SchedulerOutput) -> list[tuple[str, torch.Tensor]]:
        done = []
        for request, indices in output.scheduled_encoder_inputs.items():
            for index in indices:
                feature = self.features[request][index]
                if feature.data is None or all(value.data is None for value in _media(feature)):
                    raise EngineDeadError(f"{request} item {index} has no pixels to encode")
                if self.rank == 0:
                    self.script.encodes.append(feature.identifier)
                done.append((feature.identifier, self._embedding(feature)))
        return done

    def _gather(self, output: SchedulerOutput) -> None:
        encoded = set(self.script.encodes)
        for request, computed in _computed(output):
            end = computed + output.num_scheduled_tokens[request]
            for feature in self.features[request]:
                position = feature.mm_position
                if position.offset >= end or position.offset + position.length <= computed:
                    continue
                tensor = self.cache.get(feature.identifier)
                if tensor is None:
                    raise EngineDeadError(f"Encoder cache miss for {feature.identifier}")
                if tensor.shape != (position.get_num_embeds(), self.script.width):
                    raise EngineDeadError(f"{tuple(tensor.shape)} does not fit {feature.identifier}")
                if not torch.equal(tensor, self._embedding(feature)):
                    self.script.wrong.append(feature.identifier)
                if self.rank == 0 and feature.identifier not in encoded:
                    self.script.loads.append(feature.identifier)

    def _embedding(self, feature: Any) -> torch.Tensor:
        rows = feature.mm_position.get_num_embeds()
        return embedding(feature.identifier, rows, self.script.width, self.config.model_config.dtype)

    def _sampled(self, output: SchedulerOutput, told: ECConnectorOutput) -> ModelRunnerOutput:
        requests = list(output.num_scheduled_tokens)
        computed, sampled = dict(_computed(output)), []
        for request in requests:
            complete = computed[request] + output.num_scheduled_tokens[request] >= self.tokens[request]
            self.tokens[request] += complete
            sampled.append([TOKEN] if complete else [])
        index = {request: position for position, request in enumerate(requests)}
        result = ModelRunnerOutput(req_ids=requests, req_id_to_index=index, sampled_token_ids=sampled)
        result.ec_connector_output = None if told.is_empty() else told
        return result


class PretendedExecutor(Executor):
    """Ranks in threads, each with its steps in order; a step's output is there when the last rank has run it."""

    script: Script

    def _init_executor(self) -> None:
        self.ranks = [Worker(self.vllm_config, self.script, rank) for rank in range(self.script.ranks)]
        self.queues: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in self.ranks]
        self.threads = [
            threading.Thread(target=self._serve, args=(worker, steps), daemon=True)
            for worker, steps in zip(self.ranks, self.queues, strict=True)
        ]
        for thread in self.threads:
            thread.start()
        self.last: Future[Any] | None = None

    def execute_model(self, scheduler_output: SchedulerOutput, non_block: bool = False) -> Any:
        parts: list[Future[Any]] = [Future() for _ in self.ranks]
        whole: Future[Any] = Future()

        def joined(_: Future[Any]) -> None:
            if not all(part.done() for part in parts) or whole.done():
                return
            error = next((part.exception() for part in parts if part.exception()), None)
            if error is not None:
                whole.set_exception(error)
            else:
                whole.set_result(ECOutputAggregator().aggregate([part.result() for part in parts]))

        for part, steps in zip(parts, self.queues, strict=True):
            steps.put((scheduler_output, part))
        for part in parts:
            part.add_done_callback(joined)
        self.last = whole
        return whole if non_block else whole.result()

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        assert self.last is not None
        return self.last if non_block else self.last.result()

    def _serve(self, worker: Worker, steps: queue.SimpleQueue[Any]) -> None:
        while True:
            task = steps.get()
            if task is None:
                return
            output, part = task
            if worker.rank in self.script.gates and output.ec_connector_metadata.step.loads:
                self.script.gates[worker.rank].wait()
            if worker.rank in self.script.before:
                self.script.before[worker.rank](output)
            try:
                part.set_result(worker.step(output))
            except BaseException as error:
                part.set_exception(error)

    def collective_rpc(self, method: Any, timeout: Any = None, args: Any = (), kwargs: Any = None, **_: Any) -> Any:
        answers = {
            "get_kv_cache_spec": {} if self.vllm_config.is_mm_encoder_only else {"layer": self._spec()},
            "determine_available_memory": self.script.blocks * self._spec().page_size_bytes,
        }
        if callable(method):  # vLLM measures the encoder's width so
            return [{"image": self.script.width, "video": self.script.width}]
        if method == "shutdown":
            self._stop()
        if method == "reset_encoder_cache":
            for worker in self.ranks:
                worker.cache.clear()
        return [answers.get(method)]

    def get_supported_kv_cache_layouts(self) -> Any:
        return [["NHD"]]

    def compile_or_warm_up_model(self) -> None:
        """There is nothing to warm up."""

    def check_health(self) -> None:
        """It is well."""

    def _spec(self) -> FullAttentionSpec:
        return FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=8, dtype=torch.float16)

    def _stop(self) -> None:
        for steps in self.queues:
            steps.put(None)
        for thread in self.threads:
            thread.join(5)
        for worker in self.ranks:
            worker.connector.shutdown()


def _media(feature: Any) -> list[Any]:
    return [value for key, value in feature.data.items() if key != "image_grid_thw"]


def _computed(output: SchedulerOutput) -> list[tuple[str, int]]:
    cached = output.scheduled_cached_reqs
    return [(new.req_id, new.num_computed_tokens) for new in output.scheduled_new_reqs] + list(
        zip(cached.req_ids, cached.num_computed_tokens, strict=True)
    )
