"""What each encoder-cache connector lets a proxy do about items that were encoded before, or are being encoded now.

Pure. Sources: vLLM distributed/ec_transfer/ec_connector/{example_connector,cpu/connector,mooncake/scheduler}.py, and
our own connector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

import orjson

from epd.proxy.parsed import ParsedRequest


class Connector(StrEnum):
    """How embeddings get from encoders to the prefill side."""

    EXAMPLE = "Example"
    """ECExampleConnector: files."""
    MANAGED = "Managed"
    """Ours: files that outlive pods, and whose absence fails one request only."""
    HOST_MEMORY = "HostMemory"
    """ECCPUConnector with NIXL: read out of the encoder's memory by whom it was announced to."""
    MOONCAKE = "Mooncake"
    """ECMooncakeConnector: pushed by the encoder to an engine that the primer names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """What may be done with one connector."""

    coalesced: bool
    """Whether equal items of requests at the same time may share a primer."""
    hinted: bool
    """Whether an item that was encoded a while ago may go without a primer."""
    announced: bool
    """Whether what the encoder says of an item must be passed on to who reads it (`ec_transfer_params`)."""
    pushed: bool
    """Whether an encoder must be told the engine that is to have an item, which then can't do without it."""


SHARING: Final[Mapping[Connector, Sharing]] = MappingProxyType(
    {
        # an entry may be deleted at any time, which nobody is told and which kills the engine that counts on it
        Connector.EXAMPLE: Sharing(coalesced=True, hinted=False, announced=False, pushed=False),
        Connector.MANAGED: Sharing(coalesced=True, hinted=True, announced=False, pushed=False),
        # the encoder keeps an item for one reader, for 30 s
        Connector.HOST_MEMORY: Sharing(coalesced=False, hinted=False, announced=True, pushed=False),
        # each engine gets its own copy, under an id of this one request
        Connector.MOONCAKE: Sharing(coalesced=False, hinted=False, announced=False, pushed=True),
    }
)


def read_announcement(answer: bytes) -> Mapping[str, Any]:
    """Read what a primer's answer says for the engine that reads its items; nothing where that makes no sense."""
    try:
        params = orjson.loads(answer).get("ec_transfer_params")
    except (ValueError, AttributeError):
        return {}
    return params if isinstance(params, dict) else {}


def announce(request: ParsedRequest, params: Mapping[str, Any]) -> ParsedRequest:
    """Write `params` into the bodies for the prefill side, which never have any of the client's."""
    return request.with_fields({"ec_transfer_params": params})
