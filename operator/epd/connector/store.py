"""The encoder cache on a claim, as an engine uses it: publish, look, fetch, stamp, pin. Deletes no entry.

All functions are synchronous and may hang with the volume: call them from threads that the engine does not wait for.
Thread-safe. Whoever reads gets `Rejected`, whoever writes `StoreError`, for everything that a volume can do.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from . import layout, reading, records, writing
from .entry import Expectation, Parsed, Reason, Rejected, Shape
from .pins import Pin, Pins
from .records import Record
from .sealing import Seal
from .seam import Files, StoreError, failing, rejected

__all__ = ["Expectation", "Parsed", "Pin", "Published", "Reason", "Record", "Rejected", "Shape", "Store", "StoreError"]

_ATTEMPTS: Final = 5
"""Collectors remove empty shards and rename dead versions away; more often than this in one write is no race."""
_STAMPS: Final = 65_536
"""Identifiers remembered as stamped, some 15 MB; of a forgotten one the stamp is only repeated early."""


def _nonce() -> str:
    return secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class Published:
    """What `publish` did: payload bytes on disk, and whether a good entry was there `already`."""

    bytes: int
    already: bool


class Store:
    """The entries of one version below `root`. Thread-safe."""

    def __init__(
        self,
        root: str,
        version: str,
        *,
        stamp_seconds: float,
        pod: str | None = None,
        files: Files = os,
        nonce: Callable[[], str] = _nonce,
        clock: Callable[[], float] = time.monotonic,
        progressed: Callable[[], object] = lambda: None,
    ) -> None:
        """`pod` names the pin directory: the pod's uid, or a random name. `clock` counts seconds, from anywhere.

        `progressed` is called whenever a part of an entry was read.
        """
        if not layout.is_version(version):
            raise ValueError(f"not a version: {version!r}")
        self._root = root
        self._version = version
        self._directory = f"{root}/{version}"
        self._files = files
        self._nonce = nonce
        self._clock = clock
        self._progressed = progressed
        self._stamp_seconds = stamp_seconds
        self._record: Record | None = None
        self._stamps: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()
        self._pins = Pins(root, pod or nonce(), files=files, nonce=nonce)

    def path(self, identifier: str) -> str:
        """Return where the entry of an identifier lies."""
        shard, name = layout.entry_name(identifier)
        return f"{self._directory}/{shard}/{name}"

    def prepare(self, record: Record) -> None:
        """Make record and directory of the version, as far as they are missing. Raises OSError.

        Also after OSError the record is remembered: `publish` writes it when it has to make the directory.
        """
        self._record = record
        records.publish(self._files, self._root, record, self._nonce)
        records.make_directory(self._files, self._directory)

    def publish(self, identifier: str, payload: bytes | memoryview, shape: Shape) -> Published:
        """Put an entry on disk unless a good one is there, which is stamped instead. Raises StoreError, nothing else.

        `payload` is contiguous. A bad entry is replaced; readers that have it open keep it.
        """
        path = self.path(identifier)
        wanted = Expectation(identifier=identifier, rows=shape.rows, width=shape.width, dtype=shape.dtype)
        try:
            reading.verify(self._files, path, self._version, wanted, self._progressed)
        except Rejected:
            self._replace(path, identifier, memoryview(payload).cast("B"), shape)
            return Published(shape.nbytes, already=False)
        self._stamp(path)
        return Published(shape.nbytes, already=True)

    def holds(self, identifier: str) -> bool:
        """Tell whether there is a file for an identifier; its content is not looked at. False on any error."""
        try:
            self._files.stat(self.path(identifier), follow_symlinks=False)
        except OSError:
            return False
        return True

    def measure(self, expectation: Expectation) -> Parsed:
        """Return the header of an entry, checked against the expectation. Raises Rejected."""
        return reading.measure(self._files, self.path(expectation.identifier), self._version, expectation)

    def fetch(self, expectation: Expectation, into: Callable[[Shape], memoryview]) -> Parsed:
        """Read an entry's tensor into the buffer that `into` gives for its shape, and verify it. Raises Rejected.

        What `into` raises passes through. After any exception the buffer's content is undefined.
        """
        path = self.path(expectation.identifier)
        return reading.read(self._files, path, self._version, expectation, into, self._progressed)

    def stamp(self, identifier: str) -> bool:
        """Say that an entry was used: at most once per `stamp_seconds`. False if it could not be said."""
        return self._stamp(self.path(identifier))

    def write_widths(self, widths: Mapping[str, int]) -> None:
        """Add widths per modality to what the version's encoders measured. Raises StoreError."""
        with failing():
            records.write_widths(self._files, self._root, self._version, widths, self._nonce)

    def read_widths(self) -> dict[str, int]:
        """Return the width per modality as far as encoders measured it; empty on any error."""
        return records.read_widths(self._files, self._root, self._version)

    def pin(self, expectation: Expectation) -> Pin:
        """Keep an entry on disk, verified, until `unpin`. Raises Rejected, also where the volume has no hard links."""
        try:
            link = self._pins.link(self.path(expectation.identifier))
        except OSError as error:
            raise rejected(error) from error
        try:
            return Pin(link, reading.verify(self._files, link, self._version, expectation, self._progressed))
        except Rejected:
            self._pins.unlink(link)
            raise

    def unpin(self, pin: Pin) -> None:
        """Let a pinned entry go. Never raises."""
        self._pins.unlink(pin.path)

    def heartbeat(self) -> None:
        """Say that this engine's pins are held; to be called every minute. Raises OSError."""
        self._pins.heartbeat()

    def close(self) -> None:
        """Remove this engine's pins. Never raises; may be repeated."""
        self._pins.close()

    def _replace(self, path: str, identifier: str, payload: memoryview, shape: Shape) -> None:
        with failing():
            seal = Seal(identifier, self._version, shape, payload)
            for _ in range(_ATTEMPTS):
                try:
                    writing.write(self._files, path, self._nonce(), seal=seal, payload=payload)
                except FileNotFoundError:
                    with suppress(FileNotFoundError):  # removed again already: the next attempt makes it
                        self._make(os.path.dirname(path))
                else:
                    self._stamped(path)
                    return
            raise Rejected(Reason.ABSENT, f"{path} does not stay")

    def _make(self, shard: str) -> None:
        """Make a shard, and the version with its record if that is gone. Raises OSError."""
        try:
            records.make_directory(self._files, shard)
        except FileNotFoundError:
            if self._record is None:
                raise
            self.prepare(self._record)
            records.make_directory(self._files, shard)

    def _stamp(self, path: str) -> bool:
        now = self._clock()
        with self._lock:
            last = self._stamps.get(path)
        if last is not None and now - last < self._stamp_seconds:
            return True
        try:
            self._files.utime(path, None, follow_symlinks=False)
        except OSError:
            return False
        self._stamped(path)
        return True

    def _stamped(self, path: str) -> None:
        with self._lock:
            self._stamps[path] = self._clock()
            self._stamps.move_to_end(path)
            while len(self._stamps) > _STAMPS:
                self._stamps.popitem(last=False)
