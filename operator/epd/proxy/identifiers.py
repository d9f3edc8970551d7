"""Names of media items, and hashes to choose engines by.

Knows nothing of requests. An identifier becomes vLLM's key of the item, so it must change with everything that changes
the embedding within one model version, and with the salt.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum

from blake3 import blake3


class HashAlgorithm(StrEnum):
    """`spec.encoderCache.hashAlgorithm`. SHA256 is for FIPS."""

    BLAKE3 = "BLAKE3"
    SHA256 = "SHA256"


def digest(algorithm: HashAlgorithm, *fields: str) -> str:
    """Hash `fields` to 64 hex digits; each field is prefixed by its length, so that no two lists collide."""
    hasher = blake3() if algorithm is HashAlgorithm.BLAKE3 else hashlib.sha256()
    for field in fields:
        # surrogatepass: JSON may carry lone surrogates, which plain UTF-8 refuses
        data = field.encode("utf-8", "surrogatepass")
        hasher.update(len(data).to_bytes(8, "big"))
        hasher.update(data)
    return hasher.hexdigest()


def media_identifier(
    algorithm: HashAlgorithm, *, kind: str, mime_type: str, media_format: str, payload: str, salt: str
) -> str:
    """Identify an item whose bytes are in the request.

    `payload` is the base64 text as it was sent: a video of MIME type `video/jpeg` is a comma-separated list of base64
    frames (vLLM multimodal/media/video.py), so the payload of a `data:` URL is not always one base64 text, and equal
    text is equal content to every decoder.
    """
    return digest(algorithm, "epd.media.v1", salt, kind, mime_type, media_format, payload)


def url_key(kind: str, url: str) -> str:
    """Key to choose an encoder by and to join equal work. Never sent to an engine, since a URL's content may change."""
    return digest(HashAlgorithm.BLAKE3, "epd.url.v1", kind, url)
