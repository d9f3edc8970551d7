"""Names of media items, and hashes to choose engines by.

Knows nothing of requests. An identifier becomes vLLM's key of the item, so it must change with everything that changes
the embedding within one model version, and with the salt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import Final, Protocol

from blake3 import blake3

_CACHED_LENGTH: Final = 128
"""Characters of a MIME type and a format together, up to which they are remembered."""


class Hasher(Protocol):
    """A hash that is being computed."""

    def update(self, data: bytes | memoryview, /) -> object:
        """Take the next bytes."""

    def hexdigest(self) -> str:
        """The digest of all that was taken, in hex."""


class HashAlgorithm(StrEnum):
    """`spec.encoderCache.hashAlgorithm`. SHA256 is for FIPS."""

    BLAKE3 = "BLAKE3"
    SHA256 = "SHA256"


# found for every item, and in Python 3.11 a member is found through its class ten times slower
_BLAKE3: Final = HashAlgorithm.BLAKE3


def hasher(algorithm: HashAlgorithm) -> Hasher:
    """A fresh hash of `algorithm`, to be fed piece by piece."""
    return blake3() if algorithm is _BLAKE3 else hashlib.sha256()


def digest(algorithm: HashAlgorithm, *fields: str) -> str:
    """Hash `fields` to 64 hex digits; each field is prefixed by its length, so that no two lists collide."""
    return _hash(algorithm, _frame(fields))


def _frame(fields: Iterable[str]) -> bytes:
    # surrogatepass: JSON may carry lone surrogates, which plain UTF-8 refuses
    encoded = [field.encode("utf-8", "surrogatepass") for field in fields]
    return b"".join([piece for data in encoded for piece in (len(data).to_bytes(8, "big"), data)])


def _hash(algorithm: HashAlgorithm, data: bytes) -> str:
    # blake3's own hexdigest takes longer than to hash a kilobyte
    return blake3(data).digest().hex() if algorithm is _BLAKE3 else hashlib.sha256(data).hexdigest()


def content_digest(algorithm: HashAlgorithm, payload: str) -> str:
    """Hash the payload of an item whose bytes are in the request.

    `payload` is the base64 text as it was sent: a video of MIME type `video/jpeg` is a comma-separated list of base64
    frames (vLLM multimodal/media/video.py), so the payload of a `data:` URL is not always one base64 text, and equal
    text is equal content to every decoder.
    """
    return _hash(algorithm, payload.encode("utf-8", "surrogatepass"))


def content_identifier(
    algorithm: HashAlgorithm, *, kind: str, mime_type: str, media_format: str, content: str, salt: str
) -> str:
    """Identify an item by the digest of its payload, which may have been made before anything else of it was known.

    It is the digest of "epd.media.v2", salt, kind, MIME type, format and content.
    """
    fields = (salt, kind, mime_type, media_format)
    # what is long is no MIME type, and the cache must not keep what clients think up
    begin = _begin(*fields) if len(mime_type) + len(media_format) <= _CACHED_LENGTH else _begin.__wrapped__(*fields)
    return _hash(algorithm, begin + content.encode())


@lru_cache(maxsize=256)
def _begin(salt: str, kind: str, mime_type: str, media_format: str) -> bytes:
    """The frame up to the content; a deployment sees a handful of MIME types for each tenant."""
    return _frame(("epd.media.v2", salt, kind, mime_type, media_format)) + (64).to_bytes(8, "big")


def url_key(kind: str, url: str, *, salt: str) -> str:
    """Key to choose an encoder by and to join equal work. Never sent to an engine, since a URL's content may change."""
    return digest(HashAlgorithm.BLAKE3, "epd.url.v2", salt, kind, url)
