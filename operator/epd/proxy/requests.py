"""Reads bodies of requests: refuses, strips, and takes the media out; what comes of it is in `parsed.py`.

Pure. Never decides where a request goes. Where media stand in dialects other than chat is `dialects.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from epd.proxy.documents import read, write, write_exactly
from epd.proxy.errors import InvalidRequestError
from epd.proxy.holes import Holes
from epd.proxy.isolation import combined_salt
from epd.proxy.lifting import NOTHING, LiftedBody
from epd.proxy.media import KINDS, MediaItem, MediaPolicy, parse_media
from epd.proxy.parsed import ParsedRequest
from epd.proxy.transfers import TRANSFER_FIELDS

CHAT_PATH: Final = "/v1/chat/completions"
COMPLETIONS_PATH: Final = "/v1/completions"
MODELS_PATH: Final = "/v1/models"

GivenBody = bytes | bytearray | LiftedBody

STRIPPED_FIELDS: Final = frozenset({*TRANSFER_FIELDS, "request_id"})
"""Fields of the body that no client may set. A request id is the key of a stored response (vLLM
entrypoints/openai/responses/serving.py); elsewhere the header that the proxy sets goes before it."""

PRIMER_FIELDS: Final = ("model", "mm_processor_kwargs", "media_io_kwargs", "priority", "session_id")
"""What an encoder must get of the original: the model, what its keys depend on, and its place in the queue. Not
`cache_salt`: it separates prefix caches of KV blocks, and encoders have none."""

_TURN_FIELDS: Final = frozenset({"priority", "session_id"})
"""Those of them that say when and where a primer is worked on, not what comes out."""

ITEMS_LIMIT: Final = 10_000
"""Distinct media items of a request: three times what vLLM takes by default (999 of each of its three kinds)."""

OPTIONS_LIMIT: Final = 64 << 10
"""Characters of PRIMER_FIELDS as JSON. They are sent with each primer, and a request may need thousands of primers."""

TEXT_TYPES: Final = frozenset({"text", "input_text", "output_text", "refusal", "thinking", "tool_reference"})
_MEDIA_FIELDS: Final = frozenset(KINDS)


def parse_chat(body: GivenBody, *, policy: MediaPolicy) -> ParsedRequest:
    """Parse the body of `POST /v1/chat/completions`. Raises InvalidRequestError with the path of what is wrong."""
    reading = Reading(body, policy=policy)
    reading.messages(reading.value.get("messages"), path="messages")
    return reading.finish(primer_fields=PRIMER_FIELDS, rewritable=True)


class Reading:
    """A body while it is read. Parts with media are taken out of it, and a hole stays in their places.

    `named` says whether engines take our identifiers of items, that is, a `uuid` in the part. Raises
    InvalidRequestError for what may not stand at the top of any body.
    """

    __slots__ = ("_exact", "_holes", "items", "named", "parts", "payloads", "policy", "value")

    def __init__(self, body: GivenBody, *, policy: MediaPolicy, named: bool = True) -> None:
        if isinstance(body, LiftedBody):
            self.value, self._exact = read(body.skeleton)
            self.payloads = body.payloads
        else:
            self.value, self._exact = read(body)
            self.payloads = NOTHING
        self._holes = Holes(exact=self._exact)
        self.policy = policy
        self.named = named
        self.items: dict[str, MediaItem] = {}
        self.parts: list[tuple[str, bytes]] = []
        _strip(self.value)
        if policy.ignores_priority:
            self.value.pop("priority", None)
        if policy.cache_salt:
            self.value["cache_salt"] = combined_salt(policy, self.value.get("cache_salt"), self.payloads)

    def messages(self, messages: object, *, path: str) -> None:
        """Read chat messages."""
        if not isinstance(messages, list):
            raise InvalidRequestError(f"{path} must be a list", param=path)
        for index, message in enumerate(messages):
            self.message(message, index, path=path)

    def message(self, message: object, index: int, *, path: str) -> None:
        """Read one chat message, which stands at `index` of the list at `path`."""
        if not isinstance(message, dict):
            raise InvalidRequestError("a message must be an object", param=f"{path}[{index}]")
        content = message.get("content")
        if content is not None and not isinstance(content, str):
            message["content"] = self.content(content, path=f"{path}[{index}].content")

    def content(self, content: object, *, path: str) -> list[object]:
        """Read the content of a message in chat's form, where it is not a string."""
        if not isinstance(content, list):
            raise InvalidRequestError("content must be a string or a list of parts", param=path)
        return [
            part if isinstance(part, str) or _is_plain_text(part) else self._part(part, path=f"{path}[{index}]")
            for index, part in enumerate(content)
        ]

    def take(self, item: MediaItem, part: bytes, *, path: str) -> object:
        """Take the part of an item, as JSON, out of the document; what is to be put into its place."""
        self.items.setdefault(item.key, item)
        if len(self.items) > ITEMS_LIMIT:
            raise InvalidRequestError(f"a request may have {ITEMS_LIMIT} media items", param=path)
        self.parts.append((item.key, part))
        return self._holes.hole(len(self.parts) - 1)

    def finish(
        self,
        *,
        primer_fields: Sequence[str] = (),
        rewritable: bool = False,
        previous_response_id: str | None = None,
    ) -> ParsedRequest:
        """End the reading. Without `primer_fields` the request's media are not for encoders."""
        pieces, parts = self._written()
        if not parts or not primer_fields:
            return ParsedRequest(pieces, parts, self.payloads, previous_response_id=previous_response_id)
        fields = {name: self.value[name] for name in primer_fields if self.value.get(name) is not None}
        options = write(fields, sort_keys=True)
        work_options = result_options = self.payloads.expand(options.decode())
        if len(work_options) > OPTIONS_LIMIT:
            raise InvalidRequestError(f"{', '.join(fields)} are too large together")
        if not _TURN_FIELDS.isdisjoint(fields):
            lasting = {name: value for name, value in fields.items() if name not in _TURN_FIELDS}
            result_options = self.payloads.expand(write(lasting, sort_keys=True).decode())
        return ParsedRequest(
            pieces,
            parts,
            self.payloads,
            items=tuple(self.items.values()),
            primer_fields=tuple(fields),
            options=options,
            work_options=work_options,
            result_options=result_options,
            rewritable=rewritable,
            previous_response_id=previous_response_id,
        )

    def _written(self) -> tuple[tuple[bytes, ...], tuple[tuple[str, bytes], ...]]:
        # always written anew, never the client's bytes: two parsers may read a repeated key differently
        written = write_exactly(self.value) if self._exact else orjson.dumps(self.value)
        if not self.parts:
            return (written,), ()
        pieces, numbers = self._holes.split(written)
        return pieces, tuple([self.parts[number] for number in numbers])

    def _part(self, part: object, *, path: str) -> object:
        if not isinstance(part, dict):
            raise InvalidRequestError("a content part must be an object", param=path)
        check_part(part, path=path)
        kind = part.get("type")
        if kind in TEXT_TYPES:
            part.pop("uuid", None)
            return part
        if kind not in KINDS:
            raise refused_type(kind, ["text", *KINDS], path=path)
        item = parse_media(part, path=path, policy=self.policy, payloads=self.payloads, named=self.named)
        return self.take(item, item.written(), path=path)


def _is_plain_text(part: object) -> bool:
    """Whether it is a part of text in the form of nearly all."""
    return isinstance(part, dict) and len(part) == 2 and part.get("type") == "text" and "text" in part


def check_part(part: Mapping[str, Any], *, path: str) -> None:
    """Refuse a part that carries something that its type does not say. Raises InvalidRequestError."""
    kind = part.get("type")
    if kind is not None and not isinstance(kind, str):
        raise InvalidRequestError("type must be a string", param=f"{path}.type")
    for key in part:
        if (key in _MEDIA_FIELDS and key != kind) or key.endswith("_embeds"):
            raise InvalidRequestError(f"{key} is not accepted in a part of type {_short(kind)}", param=f"{path}.{key}")


def refused_type(kind: object, accepted: Iterable[str], *, path: str) -> InvalidRequestError:
    """The refusal of a part, or the like, of a type that is not among `accepted`."""
    message = f"part type {_short(kind)!r} is not accepted, only {', '.join(accepted)}"
    return InvalidRequestError(message, param=f"{path}.type")


def _short(kind: object) -> object:
    return kind[:64] if isinstance(kind, str) else kind


def _strip(document: dict[str, Any]) -> None:
    for name in document:
        if name.endswith("_embeds"):
            raise InvalidRequestError(f"{name} is not accepted", param=name)
    if not STRIPPED_FIELDS.isdisjoint(document):
        for name in STRIPPED_FIELDS:
            document.pop(name, None)
    # vLLM copies vllm_xargs into the same dict that it reads the transfer fields from (SamplingParams.extra_args)
    extra = document.get("vllm_xargs")
    if isinstance(extra, dict):
        for name in TRANSFER_FIELDS:
            extra.pop(name, None)
