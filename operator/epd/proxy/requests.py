"""Bodies of requests and answers: parse, refuse, strip, and build what each engine gets.

Pure: bytes and dicts in, bytes and frozen values out. Never decides where a request goes.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from epd.proxy.errors import InvalidRequestError
from epd.proxy.identifiers import HashAlgorithm, digest
from epd.proxy.intake import LiftedBody
from epd.proxy.media import KINDS, MediaItem, MediaPolicy, parse_media

CHAT_PATH: Final = "/v1/chat/completions"
COMPLETIONS_PATH: Final = "/v1/completions"
MODELS_PATH: Final = "/v1/models"

TRANSFER_FIELDS: Final = ("ec_transfer_params", "kv_transfer_params")
"""Fields by which engines talk to each other; with them a client could read another's cache."""

PRIMER_FIELDS: Final = ("model", "mm_processor_kwargs", "media_io_kwargs", "priority", "session_id")
"""What an encoder must get of the original: the model, what its keys depend on, and its place in the queue."""

DEPTH_LIMIT: Final = 100
"""Levels of nesting: several times what JSON schemas of tools have, and far below the 1000 at which Python's own reader
and writer give up, wherever on the stack they are called."""

VALUES_LIMIT: Final = 2_000_000
"""Values of a body, counted by commas and brackets: more than the tokens of any prompt. Each may take 160 bytes once it
is parsed, so without a bound one body of many small values would take all memory."""

ITEMS_LIMIT: Final = 10_000
"""Distinct media items of a request: three times what vLLM takes by default (999 of each of its three kinds)."""

OPTIONS_LIMIT: Final = 64 << 10
"""Characters of PRIMER_FIELDS as JSON. They are sent with each primer, and a request may need thousands of primers."""

_TEXT_TYPES: Final = frozenset({"text", "input_text", "output_text", "refusal", "thinking", "tool_reference"})
_TRANSFER_MARK: Final = b"transfer_params"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the part of an item stands in a body: its bytes from `start` to before `end`."""

    key: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRequest:
    """A request that may be sent on: `body` for the prefill side, and its distinct media items in prompt order."""

    body: bytes
    items: tuple[MediaItem, ...] = ()
    places: tuple[Place, ...] = ()
    primer_fields: tuple[tuple[str, Any], ...] = ()
    options: str = ""
    """`primer_fields` as JSON of one form, to compare requests by."""

    def work_key(self, item: MediaItem, *, authorization: str) -> str:
        """Key of encoding `item` for this request: equal keys may share one primer in flight."""
        return digest(HashAlgorithm.BLAKE3, item.key, item.part_type, self.options, authorization)

    def body_with(self, parts: Mapping[str, bytes]) -> bytes:
        """Write the body with other parts, as JSON, in the places of items; `parts` has them by the item's key."""
        pieces, written = [], 0
        for place in self.places:
            if place.key in parts:
                pieces += [self.body[written : place.start], parts[place.key]]
                written = place.end
        return b"".join([*pieces, self.body[written:]])


def parse_chat(body: bytes | bytearray | LiftedBody, *, policy: MediaPolicy) -> ParsedRequest:
    """Parse the body of `POST /v1/chat/completions`. Raises InvalidRequestError with the path of what is wrong."""
    document = _load(body)
    _clean(document)
    messages = document.get("messages")
    if not isinstance(messages, list):
        raise InvalidRequestError("messages must be a list", param="messages")
    media = _Media()
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        if not isinstance(message, dict):
            raise InvalidRequestError("a message must be an object", param=path)
        content = message.get("content")
        if isinstance(content, list):
            message["content"] = [
                _part(part, path=f"{path}.content[{n}]", policy=policy, media=media) for n, part in enumerate(content)
            ]
        elif content is not None and not isinstance(content, str):
            raise InvalidRequestError("content must be a string or a list of parts", param=f"{path}.content")
    fields = tuple((name, document[name]) for name in PRIMER_FIELDS if document.get(name) is not None)
    options = json.dumps(fields, sort_keys=True) if media.items else ""
    if len(options) > OPTIONS_LIMIT:
        raise InvalidRequestError(f"{', '.join(dict(fields))} are too large together")
    sent, places = _put_back(_dump(document), media)
    return ParsedRequest(
        body=sent, items=tuple(media.items.values()), places=places, primer_fields=fields, options=options
    )


def parse_completion(body: bytes | bytearray | LiftedBody) -> ParsedRequest:
    """Parse the body of `POST /v1/completions`, which is text or token ids only. Raises InvalidRequestError."""
    document = _load(body)
    _clean(document)
    return ParsedRequest(body=_dump(document))


def primer_body(request: ParsedRequest, items: Sequence[MediaItem]) -> bytes:
    """Build the request that makes an encoder encode `items`.

    Never streamed: a streamed answer carries no `ec_transfer_params`. No `max_tokens`: since vLLM 0.28 an encoder
    never samples.
    """
    content = [item.part() for item in items]
    document = {**dict(request.primer_fields), "stream": False, "messages": [{"role": "user", "content": content}]}
    return _dump(document)


def strip_answer(body: bytes) -> bytes:
    """Take the transfer fields out of a JSON answer; bytes that name none, or are no JSON object, stay as they are."""
    if _TRANSFER_MARK not in body:
        return body
    try:
        document = json.loads(body)
    except ValueError:
        return body
    if not isinstance(document, dict) or not any(name in document for name in TRANSFER_FIELDS):
        return body
    for name in TRANSFER_FIELDS:
        document.pop(name, None)
    return json.dumps(document, separators=(",", ":")).encode()


def dump_part(part: Mapping[str, Any]) -> bytes:
    """Write one part as it stands in a body."""
    return json.dumps(part, separators=(",", ":")).encode()


@dataclass(slots=True)
class _Media:
    """The media of a body while it is read. `mark` stands in the document for each part that is taken out of it."""

    items: dict[str, MediaItem] = field(default_factory=dict)
    parts: list[tuple[str, bytes]] = field(default_factory=list)
    """Each part that was taken out, by its item's key; equal items may have parts that differ in `detail`."""
    # not to be guessed: a text that has it would be split
    mark: str = field(default_factory=lambda: secrets.token_hex(16))


def _part(part: object, *, path: str, policy: MediaPolicy, media: _Media) -> object:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise InvalidRequestError("a content part must be an object", param=path)
    kind = part.get("type")
    if kind is not None and not isinstance(kind, str):
        raise InvalidRequestError("type must be a string", param=f"{path}.type")
    for key in part:
        if key.endswith("_embeds") or (key in KINDS and key != kind):
            raise InvalidRequestError(f"{key} is not accepted in a part of type {kind}", param=f"{path}.{key}")
    if kind in _TEXT_TYPES:
        part.pop("uuid", None)
        return part
    if kind not in KINDS:
        accepted = ", ".join(["text", *KINDS])
        raise InvalidRequestError(f"part type {kind!r} is not accepted, only {accepted}", param=f"{path}.type")
    item = parse_media(part, path=path, policy=policy)
    media.items.setdefault(item.key, item)
    if len(media.items) > ITEMS_LIMIT:
        raise InvalidRequestError(f"a request may have {ITEMS_LIMIT} media items", param=path)
    media.parts.append((item.key, dump_part(item.part())))
    return media.mark


def _put_back(skeleton: bytes, media: _Media) -> tuple[bytes, tuple[Place, ...]]:
    """Write the body: the parts in place of their marks; and where they stand in it."""
    first, *others = skeleton.split(f'"{media.mark}"'.encode())
    pieces, places, end = [first], [], len(first)
    for (key, part), piece in zip(media.parts, others, strict=True):
        places.append(Place(key, end, end + len(part)))
        pieces += [part, piece]
        end += len(part) + len(piece)
    return b"".join(pieces), tuple(places)


def _clean(document: dict[str, Any]) -> None:
    for name in document:
        if name.endswith("_embeds"):
            raise InvalidRequestError(f"{name} is not accepted", param=name)
    for name in TRANSFER_FIELDS:
        document.pop(name, None)
    # vLLM copies vllm_xargs into the same dict that it reads the transfer fields from (SamplingParams.extra_args)
    extra = document.get("vllm_xargs")
    if isinstance(extra, dict):
        for name in TRANSFER_FIELDS:
            extra.pop(name, None)


def _load(given: bytes | bytearray | LiftedBody) -> dict[str, Any]:
    body = given.skeleton if isinstance(given, LiftedBody) else given
    # a value has at least its mark and one more byte, so small bodies need no count
    if len(body) > 2 * VALUES_LIMIT and sum(body.count(mark) for mark in b",[{") > VALUES_LIMIT:
        raise InvalidRequestError("the body has too many values", code="invalid_json")
    try:
        document = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except RecursionError:
        raise InvalidRequestError("the body is nested too deeply", code="invalid_json") from None
    except ValueError as error:
        raise InvalidRequestError(f"the body is not JSON: {error}", code="invalid_json") from None
    if not isinstance(document, dict):
        raise InvalidRequestError("the body must be a JSON object", code="invalid_json")
    if _is_deep(document):
        raise InvalidRequestError("the body is nested too deeply", code="invalid_json")
    return document


def _is_deep(document: object) -> bool:
    level = [document]
    for _ in range(DEPTH_LIMIT):
        children = (
            node.values() if isinstance(node, dict) else node for node in level if isinstance(node, (dict, list))
        )
        level = [child for group in children for child in group if isinstance(child, (dict, list))]
        if not level:
            return False
    return True


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _dump(document: dict[str, Any]) -> bytes:
    # always written anew, never the client's bytes: two parsers may read a repeated key differently
    try:
        return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    except ValueError as error:
        raise InvalidRequestError(f"the body is not JSON: {error}", code="invalid_json") from None
