"""Embeddings that an encoder pushes into the memory of one engine: how both are told which transfer is which.

Pure but for random ids. Source: vLLM distributed/ec_transfer/ec_connector/mooncake/scheduler.py. A primer names the
engine and one transfer for each feature; the engine's request names the same transfers by the keys that the encoder
reported. An engine waits for what is pushed, whether it has the media or not, and fails the request without it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from epd.proxy.media import MediaItem
from epd.proxy.parsed import ParsedRequest

TRANSFER_BYTES: Final = 16
"""Random bytes of an id, as many as vLLM's own proxy takes: an engine refuses one that names another encoding."""


@dataclass(slots=True, kw_only=True, eq=False)
class Push:
    """What one call to an encoder is to push to the engine that listens at `consumer` (`tcp://host:port`).

    `transfers` has an id for each feature of the call's prompt, in its order. An id is good for one call.
    """

    consumer: str
    transfers: Sequence[str]

    def field(self) -> bytes:
        """The field of the primer, and a comma."""
        params = {"consumer_zmq": self.consumer, "ec_items": [{"transfer_id": each} for each in self.transfers]}
        return b'"ec_transfer_params":%b,' % orjson.dumps(params)

    def read(self, answer: bytes) -> tuple[Mapping[str, str], ...]:
        """Read from the encoder's answer what its engine needs to find each transfer; nothing if one is missing.

        Then that engine would wait for it in vain.
        """
        entries = tuple(self._entries(answer))
        return entries if {entry["transfer_id"] for entry in entries} == set(self.transfers) else ()

    def _entries(self, answer: bytes) -> Iterator[Mapping[str, str]]:
        try:
            reported: object = orjson.loads(answer)["ec_transfer_params"]
        except (ValueError, KeyError, TypeError):
            return
        for key, entry in reported.items() if isinstance(reported, dict) else ():
            # an encoder that pushes repeats the last of an entry's transfers
            pushes = isinstance(entry, dict) and entry.get("transfer_id") in self.transfers
            indices = entry.get("item_indices") if pushes else None
            for index in indices if isinstance(indices, list) else ():
                if isinstance(index, int) and 0 <= index < len(self.transfers):
                    yield {"mm_hash": key, "transfer_id": self.transfers[index]}


def push(consumer: str, request: ParsedRequest, items: Sequence[MediaItem]) -> Push:
    """Name the transfers of one call that encodes `items` of `request`."""
    features = 2 if any(item.kind == "video" for item in items) and _hears_videos(request) else 1
    transfers = [secrets.token_hex(TRANSFER_BYTES) for _ in range(features * len(items))]
    return Push(consumer=consumer, transfers=transfers)


def _hears_videos(request: ParsedRequest) -> bool:
    """Whether the sound of a video is a feature of its own (as vLLM's disagg_epd_proxy.py finds out)."""
    options: dict[str, Any] = orjson.loads(request.options)
    kwargs = options.get("mm_processor_kwargs")
    return isinstance(kwargs, dict) and bool(kwargs.get("use_audio_in_video"))
