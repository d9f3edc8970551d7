"""The pod's shared memory as an engine uses it: local copies, and among them the block in which workers count."""

from __future__ import annotations

import logging
import mmap
from typing import Final

from .counters import COLUMNS, WorkerReader
from .entry import Shape
from .local import LocalCopies, room

logger = logging.getLogger(f"vllm.{__name__}")

_PAGE: Final = mmap.PAGESIZE


class SharedMemory:
    """What there is of it. Without any the engine goes on: entries are pinned, and workers do not count."""

    def __init__(self, local_bytes: int, ranks: int) -> None:
        """Take up to `local_bytes` for copies; `ranks` workers count."""
        self.copies: LocalCopies | None = None
        self.budget_bytes = 0
        """The largest copy there can be: what is larger would wait for room that never comes."""
        self.counters: str | None = None
        self.reader: WorkerReader | None = None
        block = Shape(dtype="F64", rows=ranks, width=len(COLUMNS))
        own = -(-block.nbytes // _PAGE) * _PAGE
        try:
            self.budget_bytes = min(local_bytes, room() - own)
            if self.budget_bytes < local_bytes:
                logger.warning("encoder cache: only %d bytes of shared memory are free", self.budget_bytes)
            self.copies = LocalCopies(budget_bytes=self.budget_bytes + own)
            copy = self.copies.allocate(block)
        except Exception as error:
            logger.warning("encoder cache: no shared memory, entries are pinned instead: %s", error)
            self.close()
            self.copies = None
        else:
            self.counters, self.reader = copy.path, WorkerReader(copy.buffer, ranks)

    def close(self) -> None:
        """Remove all copies. May be repeated."""
        if self.copies is not None:
            self.copies.close()
