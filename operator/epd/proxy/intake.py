"""Takes the body of a request in as it arrives, within its limits.

Knows nothing of JSON documents or media: what the body means is read once it is whole (`requests.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from epd.proxy.bodies import Share
from epd.proxy.errors import BodyTooLargeError
from epd.proxy.identifiers import HashAlgorithm


@dataclass(frozen=True, slots=True)
class Payload:
    """Text that was lifted out of a body, and the digest of it."""

    data: memoryview
    digest: str


@dataclass(frozen=True, slots=True)
class LiftedBody:
    """A body whose long base64 texts are elsewhere: `skeleton` is JSON with marks in their places."""

    skeleton: bytes | bytearray
    payloads: tuple[Payload, ...] = ()
    mark: str = ""


class Intake:
    """One body. `limit` is its largest size and `length` the size that its head announced, both in bytes.

    Raises BodyTooLargeError or OverloadedError if `length` alone is too much.
    """

    def __init__(self, *, share: Share, limit: int, algorithm: HashAlgorithm, length: int | None) -> None:
        self._share = share
        self._limit = limit
        self._algorithm = algorithm
        self._body = bytearray()
        self._admit(length or 0)

    def feed(self, data: bytes) -> None:
        """Take the next bytes. Raises BodyTooLargeError or OverloadedError."""
        self._admit(len(self._body) + len(data))
        self._body += data

    def lifted(self) -> LiftedBody:
        """The whole body; nothing may be fed after this."""
        return LiftedBody(self._body)

    def _admit(self, size: int) -> None:
        if size > self._limit:
            raise BodyTooLargeError(f"the body is larger than {self._limit} bytes (spec.proxy.media.maxBodySize)")
        if size > self._share.size:
            self._share.grow(size)
