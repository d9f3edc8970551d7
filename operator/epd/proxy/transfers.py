"""The fields by which engines talk to each other: taken out of answers, whatever else is in them.

Pure, and never raises: what an engine answers may be no JSON, or broken off.
"""

from __future__ import annotations

import re
from typing import Final

from epd.proxy.documents import read_unbounded, write, write_exactly
from epd.proxy.errors import InvalidRequestError

TRANSFER_FIELDS: Final = ("ec_transfer_params", "kv_transfer_params")
"""With them a client could read another's cache."""

TRANSFER_MARK: Final = b"transfer_params"
"""What is in all of them, to tell soon that none is there."""

_NULLS: Final = tuple(f',"{name}":null'.encode() for name in TRANSFER_FIELDS)
_NESTED_ANSWERS: Final = ("response", "message")
"""Where events of a stream have a whole answer: `response.completed` of responses, `message_start` of messages."""
_FIELD: Final = re.compile(rb'(?<!\\)"(?:ec|kv)_transfer_params"\s*:')
"""The name of such a field wherever it stands: in a string its quotes would be escaped."""
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[^"{}\[\],]+|[{}\[\],]', re.DOTALL)


def strip_answer(body: bytes) -> bytes:
    """Take the transfer fields out of a JSON answer; bytes that name none stay as they are.

    Out of what can't be read, or not be written as it was (NaN, numbers too large, an answer that broke off), they are
    cut wherever they stand.
    """
    # `in` would first try its operand as a number; engines write these fields last, so they are found soon from there
    if body.rfind(TRANSFER_MARK) < 0:
        return body
    for null in _NULLS:
        # no string has this in it, since a quote in a string is escaped
        body = body.replace(null, b"")
    if TRANSFER_MARK not in body:
        return body
    try:
        return _rewritten(body)
    except (InvalidRequestError, RecursionError):
        return _cut(body)


def _rewritten(body: bytes) -> bytes:
    """Without the fields where engines put them. Raises InvalidRequestError or RecursionError."""
    document, exact = read_unbounded(body)
    holders = [each for each in (document, *map(document.get, _NESTED_ANSWERS)) if isinstance(each, dict)]
    if not any(name in holder for holder in holders for name in TRANSFER_FIELDS):
        return body
    for holder in holders:
        for name in TRANSFER_FIELDS:
            holder.pop(name, None)
    return write_exactly(document) if exact else write(document)


def _cut(body: bytes) -> bytes:
    kept = bytearray()
    start = 0
    while (found := _FIELD.search(body, start)) is not None:
        kept += body[start : found.start()]
        start = _end_of_value(body, found.end())
        comma = kept.rfind(b",")
        if comma >= 0 and not kept[comma + 1 :].strip():
            del kept[comma:]
        elif body[start : start + 1] == b",":
            start += 1
    return bytes(kept + body[start:])


def _end_of_value(body: bytes, start: int) -> int:
    """Where the value ends that begins at `start`: before what follows it, or with all there is."""
    depth = 0
    for token in _TOKEN.finditer(body, start):
        sign = token[0]
        if depth == 0 and sign in (b",", b"}", b"]"):
            return token.start()
        depth += (sign in (b"{", b"[")) - (sign in (b"}", b"]"))
    return len(body)
