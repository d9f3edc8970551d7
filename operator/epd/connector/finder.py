"""Looks for an entry and takes it: copied and verified into local memory, or pinned. Runs in threads of a pool.

Every way in which a volume can be wrong ends in `Missed`; errors of our own do too, and are logged.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .entry import Expectation, Parsed, Rejected, Shape
from .holdings import Key, Load
from .local import BudgetFull, Copy, LocalCopies
from .store import Pin, Store, StoreError

logger = logging.getLogger(f"vllm.{__name__}")

_WIDTHS_SECONDS: Final = 10.0
"""Between reads of a widths file that lacks a modality: its encoders may still be starting."""


@dataclass(frozen=True, slots=True)
class Found:
    """An entry that may be used, and the seconds it took to get it."""

    load: Load
    source: Copy | Pin
    seconds: float

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return Shape(dtype=self.load.dtype, rows=self.load.rows, width=self.load.width).nbytes


@dataclass(frozen=True, slots=True)
class Missed:
    """No entry that may be used; `reason` labels metrics."""

    reason: str


@dataclass(frozen=True, slots=True)
class Full:
    """A good header, but no room for a copy at this moment."""


class _TooLarge(Exception):  # noqa: N818 - leads to a pin
    """An entry above the whole budget."""


class Widths:
    """The width of an encoder's output by modality: as encoders measured it, else as the model's configuration says."""

    def __init__(self, store: Store, *, default: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._default = default
        self._clock = clock
        self._known: dict[str, int] = {}
        self._read_at: float | None = None
        self._lock = threading.Lock()

    def of(self, modality: str) -> int | None:
        """Return the width to expect. Reads the store, so for threads of a pool only."""
        with self._lock:
            known, now = self._known.get(modality), self._clock()
            if known is not None:
                return known
            if self._read_at is not None and now - self._read_at < _WIDTHS_SECONDS:
                return self._default
            self._read_at = now
        widths = self._store.read_widths()
        with self._lock:
            self._known |= widths
            return self._known.get(modality, self._default)


class Finder:
    """Takes entries of one store. Thread-safe."""

    def __init__(
        self,
        store: Store,
        copies: LocalCopies | None,
        *,
        budget_bytes: int,
        widths: Widths,
        dtype: str | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without `copies`, since workers are on other nodes or there is no shared memory, everything is pinned."""
        self._store = store
        self._copies = copies
        self._budget = budget_bytes
        self._widths = widths
        self._dtype = dtype
        self._clock = clock
        self._told = False

    def find(self, key: Key, modality: str, *, pin: bool) -> Found | Missed | Full:
        """Take the entry of an identifier. `pin` if there was no room for a copy for too long."""
        began = self._clock()
        try:
            wanted = Expectation(identifier=key[0], rows=key[1], width=self._widths.of(modality), dtype=self._dtype)
            found = self._pinned(wanted) if pin or self._copies is None else self._copied(self._copies, wanted)
        except Rejected as rejected:
            return Missed(rejected.reason.value)
        except StoreError as error:
            return Missed(error.reason.value)
        except BudgetFull:
            return Full()
        except OSError:
            return Missed("io")
        except Exception:
            if not self._told:
                logger.exception("encoder cache: a lookup broke, and is a miss as all such ones will be")
            self._told = True
            return Missed("error")
        self._store.stamp(key[0])
        load, source = found
        return Found(load, source, self._clock() - began)

    def give_back(self, outcome: Found | Missed | Full) -> None:
        """Release what an abandoned search took."""
        if isinstance(outcome, Found):
            self.release(outcome.source)

    def release(self, source: Copy | Pin) -> None:
        """Free a copy, or remove a pin: the latter may hang with the store."""
        if isinstance(source, Pin):
            self._store.unpin(source)
        elif self._copies is not None:
            self._copies.release(source)

    def _copied(self, copies: LocalCopies, wanted: Expectation) -> tuple[Load, Copy | Pin]:
        taken: list[Copy] = []

        def into(shape: Shape) -> memoryview:
            if shape.nbytes > self._budget:
                raise _TooLarge
            taken.append(copies.allocate(shape))
            return taken[-1].buffer

        try:
            parsed = self._store.fetch(wanted, into)
        except _TooLarge:
            return self._pinned(wanted)
        except BaseException:
            for copy in taken:
                copies.release(copy)
            raise
        return _load(wanted.identifier, parsed, taken[-1].path, offset=0, checksum=None), taken[-1]

    def _pinned(self, wanted: Expectation) -> tuple[Load, Copy | Pin]:
        pin = self._store.pin(wanted)
        return _load(
            wanted.identifier, pin.parsed, pin.path, offset=pin.parsed.offset, checksum=pin.parsed.checksum
        ), pin


def _load(identifier: str, parsed: Parsed, path: str, *, offset: int, checksum: str | None) -> Load:
    shape = parsed.shape
    return Load(identifier, path, offset, shape.rows, shape.width, shape.dtype, checksum)
