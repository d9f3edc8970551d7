"""Takes the body of a request in as it arrives, within its limits, and has large ones looked through meanwhile.

Knows nothing of JSON documents or media: what the body means is read once it is whole (`requests.py`).
"""

from __future__ import annotations

from epd.proxy.bodies import Share
from epd.proxy.errors import BodyTooLargeError
from epd.proxy.identifiers import HashAlgorithm
from epd.proxy.lifting import LIFT_FROM, LiftedBody, Lifter


class Intake:
    """One body. `limit` is its largest size and `length` the size that its head announced, both in bytes.

    Raises BodyTooLargeError or OverloadedError if `length` alone is too much.
    """

    __slots__ = ("_algorithm", "_body", "_lifter", "_limit", "_share", "_size")

    def __init__(self, *, share: Share, limit: int, algorithm: HashAlgorithm, length: int | None) -> None:
        self._share = share
        self._limit = limit
        self._algorithm = algorithm
        self._size = 0
        self._body = b""
        self._lifter: Lifter | None = None
        if length is not None:
            self._admit(length)

    def feed(self, data: bytes) -> None:
        """Take the next bytes. Raises BodyTooLargeError or OverloadedError."""
        self._size += len(data)
        self._admit(self._size)
        if self._lifter is not None:
            self._lifter.feed(data)
        elif self._size > LIFT_FROM:
            self._lifter = Lifter(self._algorithm)
            self._lifter.feed(self._body + data if self._body else data)
            self._body = b""
        else:
            # most bodies come in one piece, which is then never copied
            self._body = self._body + data if self._body else data

    def lifted(self) -> LiftedBody:
        """The whole body; nothing may be fed after this."""
        return self._lifter.lifted() if self._lifter is not None else LiftedBody(self._body)

    def _admit(self, size: int) -> None:
        if size > self._limit:
            raise BodyTooLargeError(f"the body is larger than {self._limit} bytes (spec.proxy.media.maxBodySize)")
        if size > self._share.size:
            self._share.grow(size)
