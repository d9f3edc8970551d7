"""Which requests belong on the same engine: those of one session, or those that begin alike.

Pure. An engine keeps the KV blocks of what it has read, so a request that goes on from an earlier one is cheaper where
that one was. Only a hint: `routing.py` lets no engine have more than its share for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from epd.proxy.documents import read_unbounded, write
from epd.proxy.parsed import ParsedRequest


class Sticky(str):
    """A key that is to lead to the same engine each time, as far as that engine has no more than its share."""

    __slots__ = ()


class Affinity(StrEnum):
    """`spec.proxy.affinity`: what requests have in common that should meet the same engine."""

    NONE = "None"
    SESSION = "Session"
    """The header `x-session-id`, or `session_id` of the body."""
    PREFIX = "Prefix"
    """`prompt_cache_key`, or how the prompt begins: up to the first message of the user, media included."""


SESSION_HEADER: Final = "x-session-id"

PREFIX_CHARACTERS: Final = 1024
"""Of a prompt that is one text: some 256 tokens, so that what differs only later meets the same engine."""

_FOREWORDS: Final = frozenset({"system", "developer"})
"""Roles of messages that come before the first one of the user."""
_SCOPE: Final = ("model", "cache_salt")
"""Of different ones no KV block is shared (vLLM v1/core/kv_cache_utils.py), so nothing is gained together."""


def sticky(
    affinity: Affinity, headers: Mapping[str, str], request: ParsedRequest, *, tenant: str = ""
) -> Sticky | None:
    """The key that `request` shares with those it belongs with; None where it belongs with none.

    One without a body asks for a stored response, which one engine has.
    """
    if affinity is Affinity.NONE or request.pieces == (b"",):
        return None
    if affinity is Affinity.SESSION and (given := headers.get(SESSION_HEADER)):
        return _key(tenant, "session", given)
    document = _document(request)
    if affinity is Affinity.SESSION:
        session = document.get("session_id")
        return _key(tenant, "session", session) if session else None
    beginning = document.get("prompt_cache_key") or _beginning(document)
    scope = [document.get(name) for name in _SCOPE]
    return _key(tenant, "prefix", [scope, beginning]) if beginning else None


def _document(request: ParsedRequest) -> dict[str, Any]:
    """The body, with the keys of media in their places, so that equal media are equal."""
    body = request.body_with({key: write(key) for key, _ in request.parts})
    return read_unbounded(body if isinstance(body, bytes) else b"".join(body))[0]


def _beginning(document: Mapping[str, Any]) -> object:
    """What the prompt begins with, in any of the dialects."""
    foreword = [document[name] for name in ("system", "instructions") if document.get(name)]
    turns = document.get("messages") or document.get("input")
    if isinstance(turns, list):
        return [*foreword, *_first_turns(turns)]
    prompt = turns or document.get("prompt")
    return [*foreword, prompt[:PREFIX_CHARACTERS] if isinstance(prompt, (str, list)) else prompt] if prompt else None


def _first_turns(turns: Sequence[Any]) -> Sequence[Any]:
    for index, turn in enumerate(turns):
        if not isinstance(turn, dict) or turn.get("role") not in _FOREWORDS:
            return turns[: index + 1]
    return turns


def _key(tenant: str, kind: str, value: object) -> Sticky:
    return Sticky(hashlib.blake2b(write([tenant, kind, value]), digest_size=16).hexdigest())
