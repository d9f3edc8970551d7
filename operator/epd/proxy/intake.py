"""Takes the body of a request in as it arrives, within its limits, and has large ones looked through meanwhile.

Knows nothing of JSON documents or media: what the body means is read once it is whole (`requests.py`).
"""

from __future__ import annotations

from typing import Final

from epd.proxy.bodies import Share
from epd.proxy.errors import BodyTooLargeError
from epd.proxy.identifiers import HashAlgorithm
from epd.proxy.lifting import LIFT_FROM, LiftedBody, Lifter

GATHERED: Final = 4 << 10
"""Bytes that are looked through at a time at least. To look through a piece takes some 30 us however small it is, and a
client may send each byte in a chunk of its own."""


class Intake:
    """One body. `limit` is its largest size and `length` the size that its head announced, both in bytes.

    Raises BodyTooLargeError or OverloadedError if `length` alone is too much.
    """

    __slots__ = ("_algorithm", "_gathered", "_lifter", "_limit", "_share", "_size")

    def __init__(self, *, share: Share, limit: int, algorithm: HashAlgorithm, length: int | None) -> None:
        self._share = share
        self._limit = limit
        self._algorithm = algorithm
        self._size = 0
        self._gathered: bytes | bytearray = b""
        self._lifter: Lifter | None = None
        if length is not None:
            self._check(length)
            # takes nothing yet: who only announces a body must not keep others out
            share.check(length)

    def feed(self, data: bytes) -> None:
        """Take the next bytes. Raises BodyTooLargeError or OverloadedError."""
        self._size += len(data)
        self._check(self._size)
        self._share.grow(self._size)
        if self._size > LIFT_FROM and len(data) >= GATHERED:
            self._lift(self._gathered)
            self._gathered = b""
            self._lift(data)
        elif not self._gathered:
            # most bodies come in one piece, which is then never copied
            self._gathered = data
        else:
            if isinstance(self._gathered, bytes):
                self._gathered = bytearray(self._gathered)
            self._gathered += data
            if self._size > LIFT_FROM and len(self._gathered) >= GATHERED:
                self._lift(self._gathered)
                self._gathered = b""

    def lifted(self) -> LiftedBody:
        """The whole body; nothing may be fed after this."""
        if self._size <= LIFT_FROM:
            return LiftedBody(self._gathered)
        return self._lift(self._gathered).lifted()

    def _lift(self, data: bytes | bytearray) -> Lifter:
        if self._lifter is None:
            self._lifter = Lifter(self._algorithm)
        if data:
            self._lifter.feed(bytes(data))
        return self._lifter

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise BodyTooLargeError(f"the body is larger than {self._limit} bytes (spec.proxy.media.maxBodySize)")
