"""ManagedECConnector, the class that vLLM loads. Thin: the scheduler's half decides, the worker's reads and writes.

For vLLM 0.31 to 0.33, both model runners; parameter names are vLLM's (ec_connector/base.py), which calls by keyword.
"""

# vLLM and torch are not there when types are checked.
# mypy: disable-error-code="import-not-found", allow-subclassing-any

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import torch
from vllm.distributed.ec_transfer.ec_connector.base import (
    ECConnectorBase,
    ECConnectorMetadata,
    ECConnectorRole,
    ECConnectorWorkerMetadata,
)

from . import placement
from . import settings as configuration
from .access import Access
from .finder import Finder, Widths
from .guard import guarded
from .loading import DTYPES
from .scheduler import NOTHING, SchedulerSide, Step
from .seam import Files
from .settings import Settings
from .shared_memory import SharedMemory
from .upkeep import Upkeep
from .worker import WorkerSide

logger = logging.getLogger(f"vllm.{__name__}")

_WRITERS: Final = 4
"""Writes side by side: enough to hide one server round trip behind another's data."""


@dataclass
class ManagedMetadata(ECConnectorMetadata):
    """What a step's workers are told."""

    step: Step


@dataclass
class ManagedWorkerMetadata(ECConnectorWorkerMetadata):
    """What workers tell of a step: its number, and the identifiers of loads that failed."""

    step: int
    failed: set[str]

    def aggregate(self, other: ECConnectorWorkerMetadata) -> ECConnectorWorkerMetadata:
        """Join the words of two workers: a step is done when the last is."""
        return ManagedWorkerMetadata(min(self.step, other.step), self.failed | other.failed)


class ManagedECConnector(ECConnectorBase):
    """vLLM's encoder cache on a shared volume, in a form that cannot hurt the engine."""

    files: ClassVar[Files] = os
    """The file system of the store; tests put another one here."""

    def __init__(self, vllm_config: Any, role: ECConnectorRole) -> None:
        super().__init__(vllm_config=vllm_config, role=role)
        self.raised: dict[str, int] = {}
        self._failing: set[str] = set()
        settings = configuration.read(vllm_config.ec_transfer_config.ec_connector_extra_config)
        deciding = role == ECConnectorRole.SCHEDULER
        name, threads = ("epd-ec-lookup", settings.io_threads) if deciding else ("epd-ec-write", _WRITERS)
        self._access = Access(settings, self.files, name=name, threads=threads)
        self._shared: SharedMemory | None = None
        self._closed = False
        self._scheduler: SchedulerSide | None = None
        self._worker: WorkerSide | None = None
        if deciding:
            self._scheduler = self._scheduler_side(settings)
            logger.info("encoder cache: %s of %s at %s", settings.version, settings.claim, settings.root)
        else:
            self._worker = self._worker_side(settings)

    @guarded()
    def shutdown(self) -> None:
        """End threads and free what is held, within seconds. May be repeated."""
        if self._closed:
            return
        self._closed = True
        if self._scheduler is not None:
            self._scheduler.close()
        self._access.close()
        if self._shared is not None:
            self._shared.close()

    # Scheduler

    @guarded(False)
    def has_cache_item(self, identifier: str) -> bool:
        """As the base class. Never on a pure encoder: it would have no tensor behind its promise."""
        return self._deciding.has(identifier)

    @guarded(False)
    def ensure_cache_available(self, request: Any, num_computed_tokens: int) -> bool:
        """As the base class."""
        try:
            return self._deciding.ensure(request, num_computed_tokens)
        except Exception:  # it would wait for ever
            self._failing.add(request.request_id)
            raise

    @guarded()
    def update_state_after_alloc(self, request: Any, index: int) -> None:
        """As the base class."""
        self._deciding.allocated(request, index)

    @guarded(ManagedMetadata(NOTHING))
    def build_connector_meta(self, scheduler_output: Any) -> ECConnectorMetadata:
        """As the base class."""
        tokens, freed = scheduler_output.total_num_scheduled_tokens, scheduler_output.free_encoder_mm_hashes
        return ManagedMetadata(self._deciding.plan(tokens, freed))

    @guarded(frozenset())
    def take_unavailable_requests(self) -> set[str]:
        """As the base class; vLLM calls it once per step whose output arrived."""
        unavailable = self._deciding.account() | self._failing
        self._failing = set()
        return unavailable

    @guarded()
    def update_connector_output(self, connector_output: Any) -> None:
        """As the base class."""
        told = connector_output.ec_connector_worker_meta
        if isinstance(told, ManagedWorkerMetadata):
            self._deciding.acknowledge(told.step, told.failed)

    @guarded((False, None))
    def request_finished(self, request: Any) -> tuple[bool, dict[str, Any] | None]:
        """As the base class. Items that are not on disk get empty metadata: their pixels must go on being sent.

        Waits for the store, if shortly; so only where nothing is decoded meanwhile. An engine that encodes for itself
        has nobody to tell.
        """
        self._deciding.finished(request)
        if self.is_consumer or _aborted(request):
            return False, None
        items = self._items(request)
        for identifier in self._deciding.missing(request) if items else ():
            items[identifier]["metadata"] = {}
        return False, items or None

    # Worker

    @guarded()
    def start_load_caches(self, encoder_cache: dict[str, torch.Tensor], **kwargs: Any) -> None:  # noqa: ARG002 - the base class's
        """As the base class."""
        self._working.load(self._get_connector_metadata().step, encoder_cache)

    @guarded()
    def start_save_caches(self, **kwargs: Any) -> None:
        """As the base class."""
        self._working.republish(self._get_connector_metadata().step, kwargs.get("encoder_cache") or {})

    @guarded()
    def save_caches(  # vLLM passes the first two by these names
        self,
        encoder_cache: dict[str, torch.Tensor],
        mm_hash: str,
        **kwargs: Any,  # noqa: ARG002 - the base class's
    ) -> None:
        """As the base class. Model runner V1 calls it on pure consumers too."""
        if self.is_producer and mm_hash in encoder_cache:
            self._working.save(mm_hash, encoder_cache[mm_hash])

    @guarded((None, None))
    def get_finished(
        self,
        finished_req_ids: set[str],  # noqa: ARG002 - the base class's
    ) -> tuple[set[str] | None, set[str] | None]:
        """As the base class; called when a step ends: entries are to be on disk before the encoder answers."""
        self._working.settle()
        return None, None

    @guarded()
    def build_connector_worker_meta(self) -> ECConnectorWorkerMetadata | None:
        """As the base class."""
        report = self._working.report()
        return None if report is None else ManagedWorkerMetadata(*report)

    # Both

    @guarded()
    def get_ec_connector_stats(self) -> Any:
        """As the base class; workers hand their counts to the scheduler, since model runner V1 drops them."""
        from .stats import ManagedECStats

        delta = None if self._scheduler is None else self._scheduler.stats()
        return ManagedECStats(data=delta) if delta else None

    @classmethod
    def build_ec_connector_stats(cls, data: dict[str, Any] | None = None) -> Any:
        """As the base class."""
        from .stats import ManagedECStats

        return ManagedECStats(data=data or {})

    @classmethod
    def build_prom_metrics(
        cls, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: Any
    ) -> Any:
        """As the base class."""
        from .stats import ManagedECPromMetrics

        return ManagedECPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    # Construction

    @property
    def _deciding(self) -> SchedulerSide:
        if self._scheduler is None:
            raise RuntimeError("a worker's connector decides nothing")
        return self._scheduler

    @property
    def _working(self) -> WorkerSide:
        if self._worker is None:
            raise RuntimeError("the scheduler's connector loads nothing")
        return self._worker

    def _scheduler_side(self, settings: Settings) -> SchedulerSide:
        from vllm.distributed.ec_transfer.ec_connector.utils import (
            PlaceholderMetadataResolver,
            collect_ec_item_metadata,
        )

        config = self._vllm_config
        resolver = PlaceholderMetadataResolver(config.model_config)
        self._items: Callable[[Any], dict[str, Any]] = lambda request: collect_ec_item_metadata(
            request.mm_features, resolver
        )
        parallel = config.parallel_config
        ranks = parallel.tensor_parallel_size * getattr(parallel, "prefill_context_parallel_size", 1)
        self._shared = SharedMemory(settings.local_bytes, ranks)
        remote = configuration.remote_workers(parallel)
        widths = Widths(self._access.store, default=configuration.width(config.model_config))
        return SchedulerSide(
            store=self._access.store,
            finder=Finder(
                self._access.store,
                None if remote else self._shared.copies,
                budget_bytes=self._shared.budget_bytes,
                widths=widths,
                dtype=DTYPES.get(config.model_config.dtype),
            ),
            upkeep=Upkeep(
                self._access.store,
                self._access.pool("epd-ec-upkeep", 1),
                self._access.health,
                record=settings.record(),
                widths=getattr(config.ec_transfer_config, "mm_encoder_output_widths", None) or {},
                stamp_seconds=settings.stamp_seconds,
                deadline=settings.probe_timeout_seconds,
            ),
            health=self._access.health,
            lookups=self._access.calls,
            local=self._access.pool("epd-ec-release", 1),
            producer=self.is_producer,
            consumer=self.is_consumer,
            deadline=settings.probe_timeout_seconds,
            fields=resolver.fields_for,
            counters=self._shared.counters,
            worker_counts=self._shared.reader,
            raised=self.raised,
        )

    def _worker_side(self, settings: Settings) -> WorkerSide:
        return WorkerSide(
            store=self._access.store,
            record=settings.record(),
            writers=self._access.calls,
            health=self._access.health,
            write_timeout=settings.write_timeout_seconds,
            device=placement.device,
            rank=placement.rank,
            synchronizing=placement.synchronizing(),
            dtype=DTYPES.get(self._vllm_config.model_config.dtype),
        )


def _aborted(request: Any) -> bool:
    return getattr(request.status, "name", "") in {"FINISHED_ABORTED", "FINISHED_ERROR"}
