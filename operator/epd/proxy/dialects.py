"""Where media stand in the bodies of routes other than chat, and what of them may not come from clients.

Pure. Only what is known is let through: a part, block or item of a type that is not named here is refused, since an
engine may fetch what it names. No identifier of ours is set: these dialects drop a `uuid` (pydantic models of vLLM
entrypoints/openai/responses/protocol.py and entrypoints/anthropic/protocol.py), or have nothing encoded elsewhere.
"""

from __future__ import annotations

import re
from typing import Any, Final

from epd.proxy.documents import write
from epd.proxy.errors import InvalidRequestError
from epd.proxy.media import MediaItem, MediaPolicy, text_of, url_item
from epd.proxy.parsed import ParsedRequest
from epd.proxy.requests import PRIMER_FIELDS, GivenBody, Reading, check_part, refused_type
from epd.proxy.transfers import TRANSFER_FIELDS

RESPONSE_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
"""An id that a stored response may have; vLLM's own are `resp_` and 32 hex digits."""

SCORED_FIELDS: Final = ("queries", "documents", "items", "data_1", "data_2", "text_1", "text_2", "query")
"""Fields of score and rerank requests that may hold media (vLLM entrypoints/pooling/scoring/protocol.py)."""

_RESPONSES_TEXTS: Final = frozenset(
    {"input_text", "output_text", "text", "refusal", "reasoning_text", "summary_text", "thinking"}
)
_BLOCKS: Final = frozenset(
    {
        "text",
        "tool_use",
        "tool_reference",
        "thinking",
        "redacted_thinking",
        "tool_addition",
        "tool_removal",
    }
)
"""Blocks of `/v1/messages` that name no media (vLLM entrypoints/anthropic/protocol.py, AnthropicContentBlock)."""
_RESULT_BLOCKS: Final = frozenset({"text", "tool_reference"})
_MIME_TYPE: Final = re.compile(r"[A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+")


def parse_responses(body: GivenBody, *, policy: MediaPolicy) -> ParsedRequest:
    """Parse the body of `POST /v1/responses`. Raises InvalidRequestError with the path of what is wrong."""
    reading = Reading(body, policy=policy, named=False)
    # of gpt-oss models only, and messages all the same
    _refuse(reading, "previous_input_messages")
    given = reading.value.get("input")
    if isinstance(given, list):
        for index, item in enumerate(given):
            _read_item(reading, item, path=f"input[{index}]")
    elif not isinstance(given, str):
        raise InvalidRequestError("input must be a string or a list of items", param="input")
    return reading.finish(primer_fields=PRIMER_FIELDS, previous_response_id=_previous(reading))


def parse_messages(body: GivenBody, *, policy: MediaPolicy) -> ParsedRequest:
    """Parse the body of `POST /v1/messages`. Raises InvalidRequestError with the path of what is wrong."""
    # of the others of PRIMER_FIELDS this dialect has none
    return _read_messages(body, policy=policy).finish(primer_fields=("model",))


def parse_token_count(body: GivenBody, *, policy: MediaPolicy) -> ParsedRequest:
    """Parse the body of `POST /v1/messages/count_tokens`, for which nothing is encoded."""
    return _read_messages(body, policy=policy).finish()


def parse_tokenize(body: GivenBody, *, policy: MediaPolicy) -> ParsedRequest:
    """Parse the body of `POST /tokenize`: a prompt, or chat messages of which media are fetched but not encoded."""
    reading = Reading(body, policy=policy, named=False)
    if "messages" in reading.value:
        reading.messages(reading.value["messages"], path="messages")
    return reading.finish()


def parse_text(body: GivenBody, *, policy: MediaPolicy) -> ParsedRequest:
    """Parse a body that has text and numbers only: `/v1/completions`, `/detokenize`."""
    return Reading(body, policy=policy).finish()


def parse_pooling(body: GivenBody, *, policy: MediaPolicy) -> ParsedRequest:
    """Parse the body of `POST /v1/embeddings` or `/pooling`.

    Media may stand in it, but encoders have no part in it: primers are chat requests, which models that pool refuse.
    """
    reading = Reading(body, policy=policy, named=False)
    _read_pooling(reading)
    return reading.finish()


def parse_scoring(body: GivenBody, *, policy: MediaPolicy) -> ParsedRequest:
    """Parse the body of a score or rerank request; encoders have no part in it, as in `parse_pooling`."""
    reading = Reading(body, policy=policy, named=False)
    _read_scored(reading)
    return reading.finish()


def parse_invocation(body: GivenBody, *, policy: MediaPolicy) -> ParsedRequest:
    """Parse the body of `POST /invocations`, which an engine reads as any of the others (serve/sagemaker)."""
    reading = Reading(body, policy=policy, named=False)
    _refuse(reading, "previous_input_messages")
    _read_pooling(reading)
    _read_scored(reading)
    return reading.finish(previous_response_id=_previous(reading))


def parse_generation(body: GivenBody, *, policy: MediaPolicy) -> ParsedRequest:
    """Parse the body of `POST /inference/v1/generate`: token ids only, since its `features` are tensors."""
    reading = Reading(body, policy=policy)
    for name in ("features", "content_parts"):
        _refuse(reading, name)
    sampling = reading.value.get("sampling_params")
    extra = sampling.get("extra_args") if isinstance(sampling, dict) else None
    if isinstance(extra, dict):
        for name in TRANSFER_FIELDS:
            extra.pop(name, None)
    return reading.finish()


def _refuse(reading: Reading, name: str) -> None:
    if reading.value.get(name) is not None:
        raise InvalidRequestError(f"{name} is not accepted", param=name)


def _previous(reading: Reading) -> str | None:
    previous = reading.value.get("previous_response_id")
    if previous is None:
        return None
    if not isinstance(previous, str) or not RESPONSE_ID.fullmatch(reading.payloads.expand(previous)):
        raise InvalidRequestError("this is no id of a response", param="previous_response_id")
    return previous


def _read_item(reading: Reading, item: object, *, path: str) -> None:
    """Read one item of the input of a response: a message, a call of a tool or its output, or a reasoning."""
    if not isinstance(item, dict):
        raise InvalidRequestError("an item must be an object", param=path)
    check_part({**item, "type": None}, path=path)
    for name in ("content", "output"):
        value = item.get(name)
        where = f"{path}.{name}"
        if isinstance(value, list):
            item[name] = [_responses_part(reading, part, path=f"{where}[{index}]") for index, part in enumerate(value)]
        elif value is not None and not isinstance(value, str):
            raise InvalidRequestError(f"{name} must be a string or a list of parts", param=where)


def _responses_part(reading: Reading, part: object, *, path: str) -> object:
    if not isinstance(part, dict):
        raise InvalidRequestError("a content part must be an object", param=path)
    kind = part.get("type")
    if kind != "input_image":
        check_part(part, path=path)
        if kind not in _RESPONSES_TEXTS:
            raise refused_type(kind, ["input_text", "input_image"], path=path)
        part.pop("uuid", None)
        return part
    check_part({name: value for name, value in part.items() if name != "image_url"}, path=path)
    if part.get("file_id") is not None:
        raise InvalidRequestError("media that is only named by an id is not accepted", param=f"{path}.file_id")
    item = url_item(
        "image_url",
        text_of(part, "image_url", where=path),
        where=f"{path}.image_url",
        detail=part.get("detail"),
        policy=reading.policy,
        payloads=reading.payloads,
        named=False,
    )
    fields = dict(item.payload)
    return reading.take(item, write({"type": "input_image", "image_url": fields.pop("url"), **fields}), path=path)


def _read_messages(body: GivenBody, *, policy: MediaPolicy) -> Reading:
    reading = Reading(body, policy=policy, named=False)
    system = reading.value.get("system")
    if system is not None and not isinstance(system, str):
        reading.value["system"] = _blocks(reading, system, path="system", texts=frozenset({"text"}))
    messages = reading.value.get("messages")
    if not isinstance(messages, list):
        raise InvalidRequestError("messages must be a list", param="messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise InvalidRequestError("a message must be an object", param=f"messages[{index}]")
        content = message.get("content")
        if not isinstance(content, str):
            path = f"messages[{index}].content"
            message["content"] = _blocks(reading, content, path=path, texts=_BLOCKS, media=True, results=True)
    return reading


def _blocks(
    reading: Reading, blocks: object, *, path: str, texts: frozenset[str], media: bool = False, results: bool = False
) -> list[object]:
    """Read blocks of `texts`, and with `media` images, and with `results` those of tools, which have blocks too."""
    if not isinstance(blocks, list):
        raise InvalidRequestError("content must be a string or a list of blocks", param=path)
    read: list[object] = []
    for index, block in enumerate(blocks):
        where = f"{path}[{index}]"
        if not isinstance(block, dict):
            raise InvalidRequestError("a block must be an object", param=where)
        check_part(block, path=where)
        kind = block.get("type")
        if kind == "image" and media:
            item, part = _image(reading, block, path=where)
            read.append(reading.take(item, write(part), path=where))
            continue
        if kind == "tool_result" and results:
            content = block.get("content")
            if content is not None and not isinstance(content, str):
                block["content"] = _blocks(reading, content, path=f"{where}.content", texts=_RESULT_BLOCKS, media=True)
        elif kind not in texts:
            accepted = [*sorted(texts), *(["image"] if media else []), *(["tool_result"] if results else [])]
            raise refused_type(kind, accepted, path=where)
        read.append(block)
    return read


def _image(reading: Reading, block: dict[str, Any], *, path: str) -> tuple[MediaItem, dict[str, Any]]:
    """Read an image block; as what engines make of it, and as it is sent on."""
    source, where = block.get("source"), f"{path}.source"
    kind = source.get("type") if isinstance(source, dict) else None
    if not isinstance(source, dict) or kind not in ("base64", "url"):
        raise InvalidRequestError("source must be an object of type base64 or url", param=where)
    sent: dict[str, Any]
    if kind == "url":
        name, url = "url", text_of(source, "url", where=where)
        sent = {"type": "url", "url": url}
    else:
        # what vLLM takes where there is none
        mime_type = source.get("media_type", "image/jpeg")
        if not isinstance(mime_type, str) or not _MIME_TYPE.fullmatch(reading.payloads.expand(mime_type)):
            raise InvalidRequestError("media_type must be a MIME type", param=f"{where}.media_type")
        name, data = "data", text_of(source, "data", where=where)
        url = f"data:{mime_type};base64,{data}"
        sent = {"type": "base64", "media_type": mime_type, "data": data}
    item = url_item(
        "image_url",
        url,
        where=f"{where}.{name}",
        policy=reading.policy,
        payloads=reading.payloads,
        named=False,
    )
    return item, {"type": "image", "source": sent}


def _read_pooling(reading: Reading) -> None:
    # read by plugins of the engine, which may fetch what it names (vLLM entrypoints/pooling, IOProcessorRequest)
    _refuse(reading, "data")
    for name in ("messages", "input"):
        value = reading.value.get(name)
        for index, element in enumerate(value) if isinstance(value, list) else ():
            # messages, or lists of messages; else texts, token ids, or lists of these
            if isinstance(element, dict):
                reading.message(element, index, path=name)
            elif isinstance(element, list):
                for n, inner in enumerate(element):
                    if isinstance(inner, (dict, list)):
                        reading.message(inner, n, path=f"{name}[{index}]")
        if isinstance(value, dict):
            raise InvalidRequestError(f"{name} must not be an object", param=name)


def _read_scored(reading: Reading) -> None:
    for name in SCORED_FIELDS:
        value = reading.value.get(name)
        single = isinstance(value, dict)
        for index, element in enumerate([value] if single else value if isinstance(value, list) else ()):
            path = name if single else f"{name}[{index}]"
            if isinstance(element, dict):
                check_part({**element, "type": None}, path=path)
                content = element.get("content")
                if not isinstance(content, list):
                    # unlike a message's: a text is an element by itself
                    raise InvalidRequestError("content must be a list of parts", param=f"{path}.content")
                element["content"] = reading.content(content, path=f"{path}.content")
            elif not isinstance(element, (str, int)):
                raise InvalidRequestError("what is scored must be a string or an object", param=path)
