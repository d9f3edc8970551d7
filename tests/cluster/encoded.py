"""Pictures that an encoder alone has seen, and where their entries lie."""

from __future__ import annotations

from pathlib import Path

import httpx

from cluster import entries
from cluster.deployed import Deployed
from epd.proxy.identifiers import HashAlgorithm, content_digest, content_identifier


def identifier(url: str) -> str:
    """The identifier that the proxy gives the item of this `data:` URL."""
    return content_identifier(
        HashAlgorithm.BLAKE3,
        kind="image",
        mime_type="image/png",
        media_format="",
        content=content_digest(HashAlgorithm.BLAKE3, url.partition(",")[2]),
        salt="",
    )


def encode_only(epd: Deployed, url: str) -> str:
    """Let the encoder, and nothing else, see a picture; return the identifier under which the entry lies."""
    part = {"type": "image_url", "image_url": {"url": url}, "uuid": identifier(url)}
    primer = {"model": "tinyvlm", "messages": [{"role": "user", "content": [part]}]}
    response = httpx.post(f"{epd.engine('encode')}/v1/chat/completions", json=primer, timeout=60)
    assert response.status_code == 200, response.text
    return str(next(iter(response.json()["ec_transfer_params"])))


def entry(store: Path, epd: Deployed, key: str) -> Path:
    """The file of one entry on the claim."""
    version = epd.get()["status"]["modelVersion"]
    return entries.path(store, version, key)
