"""Where things lie on a claim that holds an encoder cache: the contract of connector and collector. Pure.

    <root>/.epd-gc/owner.json                     which claim owns the root; made with link(2), fails if present
    <root>/.epd-gc/versions/<version>.json        record of a version: makes a directory ours; outlives the directory
    <root>/.epd-gc/versions/<version>.widths.json width of an embedding per modality, as the encoders measured it
    <root>/.epd-gc/condemned/<version>            only while condemned
    <root>/.epd-gc/trash/<version>.<nonce>/       renamed away, waiting for bulk deletion
    <root>/.epd-gc/pins/<pod uid>/<nonce>/        hard links held by readers, with a heartbeat
    <root>/.epd-gc/probe/<pod uid>                server clock
    <root>/<version>/<2 hex>/<sha256 of identifier>.safetensors           Managed connector
    <root>/<version>/<identifier>/encoder_cache.safetensors               vLLM's ECExampleConnector

Standard library only, since it runs in engines too. Touches no file.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

FORMAT: Final = 1
"""Of records and entries. A reader refuses what is newer; neighbouring releases read each other's files."""

HOUSEKEEPING: Final = ".epd-gc"
OWNER: Final = "owner.json"
VERSIONS: Final = "versions"
CONDEMNED: Final = "condemned"
TRASH: Final = "trash"
PINS: Final = "pins"
PROBE: Final = "probe"
HEARTBEAT: Final = "heartbeat"
"""In a pin directory: its mtime says when the reader last lived."""

ENTRY_SUFFIX: Final = ".safetensors"
TEMPORARY_PREFIX: Final = ".tmp"
"""Of names not yet published; safetensors 0.8 uses the same prefix."""
EXAMPLE_ENTRY: Final = "encoder_cache.safetensors"

VERSION_PATTERN: Final = re.compile(r"v[0-9]{1,3}-[a-z0-9]([-a-z0-9]*[a-z0-9])?-[0-9a-f]{12}")
"""What `epd.topology.model_version` makes: `v1-<slug>-<12 hex>`."""
SHARD_PATTERN: Final = re.compile(r"[0-9a-f]{2}")
ENTRY_PATTERN: Final = re.compile(r"[0-9a-f]{64}\.safetensors")

DIRECTORY_MODE: Final = 0o770
FILE_MODE: Final = 0o660
"""Engines and collector share a user or at least a group; nobody else reads embeddings."""


def entry_name(identifier: str) -> tuple[str, str]:
    """Return shard and file name of an entry. Identifiers come from clients: hashed, never joined to a path."""
    digest = hashlib.sha256(identifier.encode("utf-8", "surrogatepass")).hexdigest()
    return digest[:2], digest + ENTRY_SUFFIX


def record_name(version: str) -> str:
    """Return the file name of a version's record."""
    return f"{version}.json"


def widths_name(version: str) -> str:
    """Return the file name of a version's widths."""
    return f"{version}.widths.json"


def is_version(name: str) -> bool:
    """Tell whether a name can be a version's directory."""
    return VERSION_PATTERN.fullmatch(name) is not None
