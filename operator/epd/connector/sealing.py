"""Makes an entry's header, of large ones while their bytes are being written: it carries their checksum. No I/O."""

from __future__ import annotations

import threading
from functools import partial
from typing import Final

from .entry import Reason, Rejected, Shape, checksum, header

_BESIDE: Final = 4 << 20
"""4 MiB, which take a core 1 ms to hash, ten times what it takes to start a thread."""
_UNKNOWN: Final = "0" * 64
"""As long as a checksum."""


class Seal:
    """The header of one entry, `length` bytes long, once its payload is hashed."""

    def __init__(self, identifier: str, version: str, shape: Shape, payload: memoryview) -> None:
        """Begin to hash a payload, which nobody changes until `head` has returned. Raises Rejected as `header` does."""
        self._payload = payload
        self._header = partial(header, identifier, version, shape)
        self._head: bytes | None = None
        self._hashing: threading.Thread | None = None
        if len(payload) < _BESIDE:
            self.length = len(self.head())
        else:
            self.length = len(self._header(_UNKNOWN))
            self._hashing = _started(self)
        if len(payload) != shape.nbytes:
            raise Rejected(Reason.TORN, f"{len(payload)} bytes for {shape}")

    def head(self) -> bytes:
        """Return the header, as soon as the checksum is there: it waits for a processor, never for a volume."""
        if self._hashing is not None:
            self._hashing.join()
        return self._head or self.hash()

    def hash(self) -> bytes:
        """Hash the payload in the caller's thread, and return the header."""
        self._head = self._header(checksum(self._payload))
        return self._head


def _started(seal: Seal) -> threading.Thread | None:
    """A thread that hashes; None where there can be no more: then whoever asks for the header does it."""
    thread = threading.Thread(target=seal.hash, name="epd-ec-hash", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread
