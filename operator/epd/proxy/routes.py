"""The allow-list of routes: what a path takes, and how its body is read. What is not in it never reaches an engine.

Pure. Never decides which engine gets a request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, Protocol

from epd.proxy.dialects import (
    RESPONSE_ID,
    parse_generation,
    parse_invocation,
    parse_messages,
    parse_pooling,
    parse_responses,
    parse_scoring,
    parse_text,
    parse_token_count,
    parse_tokenize,
)
from epd.proxy.errors import InvalidRequestError, MethodNotAllowedError, NotFoundError
from epd.proxy.media import MediaPolicy
from epd.proxy.parsed import ParsedRequest
from epd.proxy.requests import CHAT_PATH, COMPLETIONS_PATH, MODELS_PATH, GivenBody, parse_chat
from epd.proxy.stored import RESPONSES_PATH

MESSAGES_PATH: Final = "/v1/messages"
MESSAGES_COUNT_PATH: Final = "/v1/messages/count_tokens"
ANTHROPIC: Final = frozenset({MESSAGES_PATH, MESSAGES_COUNT_PATH})
"""Routes of Anthropic's API, whose clients expect errors in its shape; all others are of OpenAI's or vLLM's."""
INVOCATIONS_PATH: Final = "/invocations"
GENERATE_PATH: Final = "/inference/v1/generate"
OPENABLE: Final = frozenset({INVOCATIONS_PATH, GENERATE_PATH})
"""Routes that are only there if an option opens them."""

_STORED: Final = re.compile(r"/v1/responses/([^/]+?)(/cancel)?")
_QUERY: Final = re.compile(r"[A-Za-z0-9_=&-]{0,256}")
"""What `GET /v1/responses/{id}` has: `stream` and `starting_after`. Queries of other routes mean nothing to engines."""


class Parse(Protocol):
    """Reads a body. Raises InvalidRequestError."""

    def __call__(self, body: GivenBody, *, policy: MediaPolicy) -> ParsedRequest:
        """Read it."""


class Handling(Enum):
    """Who answers."""

    HEALTH = "the proxy by itself"
    MODELS = "any engine of the prefill side"
    ENGINE = "an engine of the prefill side"
    TWO_LEGS = "an engine of the prefill side, or one engine after another where prefill and decode are two"
    STORED = "the engine that made the response"


@dataclass(frozen=True, slots=True)
class Route:
    """A route. `path` is as in a label of metrics; `parse` is None where there is no body to read.

    Whether media may stand in a body, are encoded by encoders before, and may be left out is what `parse` says of each.
    """

    path: str
    method: str
    handling: Handling
    parse: Parse | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """A request's route. `target` is what engines are asked for, `response_id` a stored response that it names."""

    route: Route
    target: str
    response_id: str | None = None


ROUTES: Final = (
    Route("/health", "GET", Handling.HEALTH),
    Route("/healthz", "GET", Handling.HEALTH),
    Route(MODELS_PATH, "GET", Handling.MODELS),
    Route(CHAT_PATH, "POST", Handling.TWO_LEGS, parse_chat),
    Route(COMPLETIONS_PATH, "POST", Handling.TWO_LEGS, parse_text),
    Route(RESPONSES_PATH, "POST", Handling.ENGINE, parse_responses),
    Route(MESSAGES_PATH, "POST", Handling.ENGINE, parse_messages),
    Route(MESSAGES_COUNT_PATH, "POST", Handling.ENGINE, parse_token_count),
    Route("/tokenize", "POST", Handling.ENGINE, parse_tokenize),
    Route("/detokenize", "POST", Handling.ENGINE, parse_text),
    Route("/v1/embeddings", "POST", Handling.ENGINE, parse_pooling),
    Route("/pooling", "POST", Handling.ENGINE, parse_pooling),
    Route("/score", "POST", Handling.ENGINE, parse_scoring),
    Route("/v1/score", "POST", Handling.ENGINE, parse_scoring),
    Route("/rerank", "POST", Handling.ENGINE, parse_scoring),
    Route("/v1/rerank", "POST", Handling.ENGINE, parse_scoring),
    Route("/v2/rerank", "POST", Handling.ENGINE, parse_scoring),
    Route(INVOCATIONS_PATH, "POST", Handling.ENGINE, parse_invocation),
    Route(GENERATE_PATH, "POST", Handling.ENGINE, parse_generation),
)

TWO_LEGS: Final = frozenset({route.path for route in ROUTES if route.handling is Handling.TWO_LEGS})
"""Those whose bodies end after one token by `max_tokens`. Of others the engine that answers prefills by itself."""

STORED_ROUTES: Final = (
    Route("/v1/responses/{id}", "GET", Handling.STORED),
    Route("/v1/responses/{id}", "DELETE", Handling.STORED),
    Route("/v1/responses/{id}/cancel", "POST", Handling.STORED),
)

_BY_PATH: Final[Mapping[str, Match]] = MappingProxyType({route.path: Match(route, route.path) for route in ROUTES})
_LISTED: Final = ", ".join(
    f"{route.method} {route.path}" for route in (*ROUTES, *STORED_ROUTES) if route.path not in OPENABLE
)
_SHOWN: Final = 256
"""Characters of a path in a refusal."""


def find(method: str, target: str, *, opened: frozenset[str] = frozenset()) -> Match:
    """Find the route of a request in origin form. `opened` names those of OPENABLE that are there.

    HEAD is answered where GET is (RFC 9110, 9.3.2). Of a preflight, `method` is the one that it asks for. Nothing is
    decoded: a path with a percent sign is none of ours. Raises NotFoundError, MethodNotAllowedError or
    InvalidRequestError.
    """
    path, _, query = target.partition("?")
    match = _BY_PATH.get(path)
    if match is None:
        return _find_stored(method, path, query)
    if path in OPENABLE and path not in opened:
        raise no_route(path)
    if _meant(method) != match.route.method:
        raise _not_allowed(path, [match.route])
    return match


def _find_stored(method: str, path: str, query: str) -> Match:
    named = _STORED.fullmatch(path)
    if named is None or not RESPONSE_ID.fullmatch(named[1]):
        raise no_route(path)
    template = "/v1/responses/{id}" + (named[2] or "")
    routes: Sequence[Route] = [route for route in STORED_ROUTES if route.path == template]
    for route in routes:
        if route.method == _meant(method):
            if not _QUERY.fullmatch(query):
                raise InvalidRequestError("the query can't be read")
            return Match(route, f"{path}?{query}" if query else path, named[1])
    raise _not_allowed(template, routes)


def _meant(method: str) -> str:
    return "GET" if method == "HEAD" else method


def _not_allowed(path: str, routes: Sequence[Route]) -> MethodNotAllowedError:
    methods = [route.method for route in routes]
    allowed = [*methods, *(["HEAD"] if "GET" in methods else [])]
    return MethodNotAllowedError(f"{path} takes {', '.join(methods)}", allowed=", ".join(allowed))


def no_route(path: str) -> NotFoundError:
    """The refusal of a path that is not served. It names those that always are."""
    return NotFoundError(f"no route {path[:_SHOWN]}; there are {_LISTED}")
