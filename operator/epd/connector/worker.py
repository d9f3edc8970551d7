"""Does, in a worker's model thread, what cannot fail: loads local copies, hands embeddings to the store's writers.

Decides nothing and raises nothing: whatever happens to a load leaves zeros in the tensor's place, and the scheduler,
told so, fails the requests that would use them. Writes wait for the store at the end of a step, never past a deadline.
"""

# vLLM and torch are not there when types are checked.
# mypy: disable-error-code="import-not-found", allow-subclassing-any

from __future__ import annotations

import logging
import time
from collections.abc import Callable, MutableMapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Final

import torch

from .counters import SAVE_REASONS, NoRow, WorkerRow
from .entry import Shape
from .holdings import Load
from .loading import DTYPES, TORCH_DTYPES, onto
from .probe import Health, Pool, Task
from .scheduler import Step
from .store import Published, Record, Store, StoreError

logger = logging.getLogger(f"vllm.{__name__}")

_PENDING_BYTES: Final = 256 << 20
"""Of embeddings waiting for the writers: beyond it a step waits, so that a slow volume does not fill the memory."""

_WARNING_SECONDS: Final = 60.0
"""Between two lines in the log of what may happen with each picture."""

EncoderCache = MutableMapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Saving:
    """An embedding on its way to the store."""

    task: Task[Published]
    until: float
    nbytes: int
    republished: bool


class WorkerSide:
    """One worker's half of the connector. For one thread."""

    def __init__(
        self,
        *,
        store: Store,
        record: Record,
        writers: Pool,
        health: Health,
        write_timeout: float,
        device: Callable[[], torch.device],
        rank: Callable[[], int],
        synchronizing: Callable[[], AbstractContextManager[Any]],
        dtype: str | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`rank` counts the workers that run the connector: 0 writes. `synchronizing` allows a wait for the device.

        `dtype` is what consumers expect: an embedding of another is not saved, since none of them would use it.
        """
        self._dtype = dtype
        self._store, self._record, self._writers, self._health = store, record, writers, health
        self._prepared = False
        self._write_timeout = write_timeout
        self._device, self._rank, self._synchronizing, self._clock = device, rank, synchronizing, clock
        self._row: WorkerRow | NoRow = NoRow()
        self._row_path: str | None = None
        self._warned: float | None = None
        self._saving: list[Saving] = []
        self._ran: int | None = None
        self._failed: set[str] = set()
        self._zeros: set[str] = set()
        """Identifiers whose last load failed: what the encoder cache has of them is to be replaced."""

    def load(self, step: Step, cache: EncoderCache) -> None:
        """Put this step's entries into the encoder cache."""
        self._count_in(step)
        for load in step.loads:
            self._ran = step.number
            if self._has(load, cache):
                continue
            try:
                with self._synchronizing():
                    cache[load.identifier] = onto(self._device(), load)
                self._zeros.discard(load.identifier)
            except Exception:
                logger.exception("encoder cache: load failed, requests that need it will fail: %s", load.path)
                self._row.add("load_failures")
                self._failed.add(load.identifier)
                self._zeros.add(load.identifier)
                # One row for all: where memory for the entry was lacking, there is enough for this.
                row = torch.zeros((1, load.width), dtype=TORCH_DTYPES[load.dtype], device=self._device())
                cache[load.identifier] = row.expand(load.rows, -1)

    def republish(self, step: Step, cache: EncoderCache) -> None:
        """Save again what the store has lost, as far as it is still here."""
        self._count_in(step)
        for identifier in step.republish:
            if identifier in cache:
                self.save(identifier, cache[identifier], republished=True)

    def save(self, identifier: str, tensor: torch.Tensor, *, republished: bool = False) -> None:
        """Hand an embedding to the writers; `settle` waits for them."""
        if self._rank() != 0:
            return
        if self._health.suspect:
            self._row.add("save_failures.suspect")
            return
        if sum(saving.nbytes for saving in self._saving) > _PENDING_BYTES:
            self.settle()
        try:
            payload, shape = self._on_host(tensor)
        except Exception as error:
            self._seldom("encoder cache: an embedding of %s cannot be saved: %r", tuple(tensor.shape), error)
            self._row.add("save_failures.other")
            return
        if shape.dtype != (self._dtype or shape.dtype):
            self._seldom(
                "encoder cache: the encoder puts out %s, not the model's %s: nothing is saved", shape.dtype, self._dtype
            )
            self._row.add("save_failures.dtype")
            return
        task = self._writers.submit(lambda: self._publish(identifier, payload, shape))
        self._saving.append(Saving(task, self._clock() + self._write_timeout, shape.nbytes, republished))

    def settle(self) -> None:
        """Wait for the writers, so that an encoder does not answer before its entries are there."""
        savings, self._saving = self._saving, []
        began = self._clock()
        for saving in savings:
            task = saving.task
            if not self._health.suspect and not task.wait(saving.until - self._clock()):
                self._health.doubt()
            if not task.done:
                task.abandon()
                self._row.add("save_failures.timeout")
            elif task.outcome is not None:
                self._row.add("saves")
                self._row.add("republished", saving.republished)
                self._row.add("saved_bytes", 0 if task.outcome.already else task.outcome.bytes)
            else:
                self._lost(task.error)
        if savings:
            self._row.add("save_seconds", self._clock() - began)

    def report(self) -> tuple[int, set[str]] | None:
        """Return the step whose loads are done, and the loads that failed; None if there were none."""
        if self._ran is None:
            return None
        report = self._ran, self._failed
        self._ran, self._failed = None, set()
        return report

    def _has(self, load: Load, cache: EncoderCache) -> bool:
        """Whether the tensor is there. vLLM keeps one whose identifier it gives room for another size in one step."""
        held = cache.get(load.identifier)
        return held is not None and held.shape[0] == load.rows and load.identifier not in self._zeros

    def _publish(self, identifier: str, payload: memoryview, shape: Shape) -> Published:
        if not self._prepared:  # at the first write, not at the start: that must not wait for the volume
            with suppress(OSError):  # then publishing says why
                self._store.prepare(self._record)
            self._prepared = True
        return self._store.publish(identifier, payload, shape)

    def _count_in(self, step: Step) -> None:
        if step.counters is not None and step.counters != self._row_path:
            self._row_path = step.counters
            self._row = WorkerRow(step.counters, self._rank())

    def _lost(self, error: BaseException | None) -> None:
        reason = error.reason.value if isinstance(error, StoreError) else "other"
        self._row.add(f"save_failures.{reason if reason in SAVE_REASONS else 'other'}")
        self._seldom("encoder cache: not saved: %s", error)

    def _seldom(self, message: str, *values: object) -> None:
        """Warn, but not for each picture while a volume is full: counters say how many."""
        now = self._clock()
        if self._warned is None or now - self._warned >= _WARNING_SECONDS:
            self._warned = now
            logger.warning(message, *values)

    def _on_host(self, tensor: torch.Tensor) -> tuple[memoryview, Shape]:
        """The tensor's bytes in host memory. On a CPU this is the tensor itself, which nobody changes any more."""
        rows, width = tensor.shape
        with self._synchronizing():
            host = tensor.detach().to("cpu").contiguous()
        return _bytes(host), Shape(dtype=DTYPES[tensor.dtype], rows=rows, width=width)


def _bytes(tensor: torch.Tensor) -> memoryview:
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy())
