"""Ids of responses that an engine stores (`/v1/responses`), which say which engine that is.

Pure. An engine takes the id of a response from the body's `request_id` (vLLM entrypoints/openai/responses/serving.py)
and keeps what it stores to itself, so that every replica of the proxy must know from the id alone where to look.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Final

from epd.proxy.errors import InvalidRequestError
from epd.proxy.identifiers import HashAlgorithm, digest
from epd.proxy.parsed import ParsedRequest
from epd.proxy.pods import Member

RESPONSES_PATH: Final = "/v1/responses"

_BEGIN: Final = "resp_"
"""vLLM takes no other as a `previous_response_id`."""
_TOKEN: Final = 16
"""Hex digits that stand for an engine and a tenant. No name is shown; of 10,000 pairs two are alike once in 10^11."""
_UNIQUE_BYTES: Final = 16
"""As many random bytes as in vLLM's own ids; with an id alone a response can be read."""


def new_id(engine: str, tenant: str = "") -> str:
    """An id for a response that `engine`, a member's name, is going to make; for `tenant` alone, if given."""
    return f"{_BEGIN}{_token(engine, tenant)}{secrets.token_hex(_UNIQUE_BYTES)}"


def made_by(response_id: str, engines: Iterable[Member], tenant: str = "") -> Member:
    """The one of `engines` that made a response for `tenant`. Raises InvalidRequestError if none of them did.

    An engine knows no other id of a response than the one that was made for its tenant, and that begins as no other
    tenant's do.
    """
    begin = response_id[: len(_BEGIN) + _TOKEN]
    for engine in engines:
        if begin == _BEGIN + _token(engine.name, tenant):
            return engine
    whose = ", or it was made with another tenant's API key" if tenant else ""
    raise InvalidRequestError(
        f"the engine that made {response_id} is gone, and its stored responses with it{whose}",
        code="response_not_found",
    )


def stored_as(request: ParsedRequest, response_id: str) -> ParsedRequest:
    """The request with the id that its response is to have."""
    return request.with_fields({"request_id": response_id})


def _token(engine: str, tenant: str) -> str:
    return digest(HashAlgorithm.BLAKE3, "epd.response.v2", engine, tenant)[:_TOKEN]
