"""JSON documents of clients: read fast where that reads them rightly, else exactly; and written anew.

Pure. What is refused, and how numbers and texts are understood, is what Python's own parser does, as in the engines:
orjson reads a document only where both agree. They do not on integers beyond 64 bits, which orjson reads as floats. On
lone surrogates, infinite numbers and long digits orjson fails, and Python's parser has the last word.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

import orjson

from epd.proxy.errors import InvalidRequestError

DEPTH_LIMIT: Final = 100
"""Levels of nesting: several times what JSON schemas of tools have, and far below the 1000 at which Python's own reader
and the 254 at which orjson's writer give up, wherever on the stack they are called."""

PARSED_LIMIT: Final = 80 << 20
"""Bytes that a body may take once it is parsed, as PARSED_BYTES tells: those of a prompt of a million tokens, and a
twelfth of a proxy's default memory limit. Many small values take up to 30 times the body's size, so without a bound one
body would take all memory."""

PARSED_BYTES: Final = {b",": 72, b"[": 72, b"{": 184, b":": 40}
"""Bytes that are taken for each of these signs, at most: a short string in a list (numbers take 32), a list, an object
of one member, and the name of a member if it is another in each object (measured with orjson on Python 3.11)."""

_SMALL: Final = PARSED_LIMIT // max(PARSED_BYTES.values())
"""Bytes of a body that can't take more, whatever it has."""

_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
"""Digits look alike, so that a search tells whether there are many in a row."""
_LONG_NUMBER: Final = b"0" * 19
"""Digits of the shortest integer that may not fit into 64 bits: -2^63 has as many."""


def read(body: bytes | bytearray) -> tuple[dict[str, Any], bool]:
    """Read a client's object; and whether it has something that only `write_exactly` writes as it was.

    Raises InvalidRequestError (`invalid_json`) if it is no object or too much of one.
    """
    if len(body) > _SMALL and sum(body.count(sign) * size for sign, size in PARSED_BYTES.items()) > PARSED_LIMIT:
        raise InvalidRequestError("the body has too many values", code="invalid_json")
    document, exact = _read(body, _may_have_long_number(body))
    if _brackets(body) > DEPTH_LIMIT and _is_deep(document):
        raise InvalidRequestError("the body is nested too deeply", code="invalid_json")
    return document, exact


def read_unbounded(body: bytes) -> tuple[dict[str, Any], bool]:
    """Read an object as `read` does, however large and deep it is."""
    return _read(body, _may_have_long_number(body))


def _may_have_long_number(body: bytes | bytearray) -> bool:
    return body.translate(_DIGITS).find(_LONG_NUMBER) >= 0


def _brackets(body: bytes | bytearray) -> int:
    """How many brackets open in `body`, those in its texts too."""
    # to take a byte out finds it as memchr(3) does; to count it looks at each, which takes five times as long
    return 2 * len(body) - len(body.replace(b"[", b"")) - len(body.replace(b"{", b""))


def _read(body: bytes | bytearray, exact: bool) -> tuple[dict[str, Any], bool]:
    if not exact:
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError:
            exact = True
    if exact:
        document = _read_exactly(body)
    if not isinstance(document, dict):
        raise InvalidRequestError("the body must be a JSON object", code="invalid_json")
    return document, exact


def write(value: object, *, sort_keys: bool = False) -> bytes:
    """Write a value without spaces; what orjson can't write is left to Python. Floats must be finite."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS) if sort_keys else orjson.dumps(value)
    except TypeError:
        return write_exactly(value, sort_keys=sort_keys)


def write_exactly(value: object, *, sort_keys: bool = False) -> bytes:
    """Write a value as Python does. Raises InvalidRequestError for infinite numbers, which JSON has not."""
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False, sort_keys=sort_keys)
    except ValueError as error:
        raise InvalidRequestError(f"the body is not JSON: {error}", code="invalid_json") from None
    return text.encode()


def _read_exactly(body: bytes | bytearray) -> Any:
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except RecursionError:
        raise InvalidRequestError("the body is nested too deeply", code="invalid_json") from None
    except ValueError as error:
        raise InvalidRequestError(f"the body is not JSON: {error}", code="invalid_json") from None


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
