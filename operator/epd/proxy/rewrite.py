"""Requests without pixels: what encoders report of items, and the body that goes on with it in place of the media.

Pure. Never decides when such a body is sent, nor what follows when an engine fails on it (`exchange.py` does).

An engine that gets the report of an item instead of the item fetches, decodes and preprocesses nothing; it finds the
embeddings under the item's identifier or can't answer (vLLM renderers/chat_utils.py, `parse_image_embeds`; JSON arrays
are read since vLLM 0.30).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from epd.proxy.documents import write
from epd.proxy.media import MediaItem
from epd.proxy.parsed import ParsedRequest

OPTIONS: Final = frozenset({"mm_processor_kwargs", "media_io_kwargs"})
"""Fields with which an engine hashes a `uuid` anew (vLLM multimodal/processing/inputs.py, `get_mm_hashes`)."""

_LONGEST_NUMBER: Final = 20
"""Characters of an integer of 64 bits, the longest that tensors have."""

_FIELD: Final = b'"ec_transfer_params"'
_NO_METADATA: Final[Mapping[str, Any]] = {}
_CONTENT_KEY: Final = re.compile(r"[0-9a-f]{64}(?:[0-9a-f]{64})?")
"""vLLM's key of a content (blake3, sha256, sha512). Others, such as `<lora>:<key>`, it makes anew from a `uuid`."""


@dataclass(slots=True, init=False)
class Reported:
    """What an encoder said of one item: the key it published under, and the fields that stand for the item.

    `metadata` is empty where the encoder named none, or not in a form that can be passed on.
    """

    identifier: str
    metadata: Mapping[str, Any]

    def __init__(self, identifier: str = "", metadata: Mapping[str, Any] = _NO_METADATA) -> None:
        self.identifier = identifier
        self.metadata = metadata


_UNREPORTED: Final = Reported()


def read_report(answer: bytes, items: int) -> tuple[Reported, ...]:
    """Read from a primer's answer what it says of each of `items` items, matched by `item_indices`.

    An item of which two entries speak, and an entry with an index that is none, have no metadata.
    """
    found = [_UNREPORTED] * items
    for identifier, entry in _entries(answer).items():
        indices = entry.get("item_indices") if isinstance(entry, dict) else None
        if not isinstance(indices, list):
            continue
        valid = [n for n in indices if type(n) is int and 0 <= n < items]
        metadata = _metadata(entry.get("metadata")) if len(valid) == len(indices) else {}
        for index in valid:
            metadata_of_item = {} if found[index].identifier else metadata
            found[index] = Reported(identifier=identifier, metadata=metadata_of_item)
    return tuple(found)


def without_pixels(request: ParsedRequest, reported: dict[str, Reported]) -> bytes | None:
    """Write the body with reports, by the item's key, instead of media; None where no media can be left out.

    Engines take either media or reports of one modality in one request, and reports of equal fields only. So all items
    of a modality are replaced, or none; and beside sounds all modalities or none, since a processor of sounds may look
    at what stands for others (vLLM's disagg_epd_proxy.py does the same).
    """
    if not request.rewritable or not OPTIONS.isdisjoint(request.primer_fields):
        return None
    modalities: dict[str, list[MediaItem]] = {}
    for item in request.items:
        alike = modalities.get(item.kind)
        if alike is None:
            modalities[item.kind] = [item]
        else:
            alike.append(item)
    parts: dict[str, bytes] = {}
    for items in modalities.values():
        replaced = _replaced(items, reported)
        if not replaced and "audio" in modalities:
            return None
        parts.update(replaced)
    if not parts:
        return None
    body = request.body_with(parts)
    # in pieces only where media of another modality are left, and were lifted
    return body if isinstance(body, bytes) else b"".join(body)


def _replaced(items: list[MediaItem], reported: dict[str, Reported]) -> dict[str, bytes]:
    """Write the parts that stand for `items`, which are of one modality; none where one of them can't be replaced."""
    parts: dict[str, bytes] = {}
    first: Mapping[str, Any] | None = None
    for item in items:
        report = reported.get(item.key)
        if report is None or not report.metadata or not _named_alike(item, report):
            return {}
        if first is None:
            first = report.metadata
        elif report.metadata.keys() != first.keys():
            return {}
        kind = f"{item.kind}_embeds"
        parts[item.key] = write({"type": kind, kind: report.metadata, "uuid": report.identifier})
    return parts


def _named_alike(item: MediaItem, report: Reported) -> bool:
    """Whether an engine that gets the reported key as `uuid` looks under that key.

    It does unless it has options of its own, which change an item's key on the encoder too. Of URLs, which have no key
    of ours to compare with, only the form shows.
    """
    return report.identifier == item.identifier or (
        item.identifier is None and _CONTENT_KEY.fullmatch(report.identifier) is not None
    )


def _entries(answer: bytes) -> dict[str, Any]:
    """Read the field of an answer that has the reports; nothing where it is none."""
    # engines write it last; where the answer from there on is the rest of an object, it is a field of the answer itself
    start = answer.find(_FIELD)
    try:
        document = orjson.loads(b"{" + answer[start:] if start >= 0 else answer)
    except ValueError:
        try:
            document = _load(answer)
        except ValueError:
            return {}
    entries = document.get("ec_transfer_params") if isinstance(document, dict) else None
    return entries if isinstance(entries, dict) else {}


def _load(answer: bytes) -> Any:
    try:
        return orjson.loads(answer)
    except ValueError:
        # which reads NaN too, so that only the item is lost that has it
        return json.loads(answer, parse_int=_whole)


def _whole(text: str) -> int | float:
    return int(text) if len(text) <= _LONGEST_NUMBER else math.inf


def _metadata(value: object) -> dict[str, Any]:
    """Read the fields of one item; none at all if one is not a list of numbers, the only form that engines take."""
    if not isinstance(value, dict):
        return {}
    for vector in value.values():
        if not isinstance(vector, list) or not vector:
            return {}
        for number in vector:
            # a bool is an int, but not of its type
            if type(number) is not int and (type(number) is not float or not math.isfinite(number)):
                return {}
    return value
