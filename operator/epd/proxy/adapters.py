"""Has media encoded under a name of the model that encoders know, where a request names a LoRA adapter.

Adapters are loaded where text is generated. An encoder has one only if it adapts the vision tower, and then it takes
the adapter's name (and puts it into keys: vLLM v1/engine/input_processor.py, `_get_mm_identifier`). Otherwise it
answers 404, and the item is the same for the adapter as for its base model, which the prefill side lists as `parent`
(vLLM entrypoints/openai/models/serving.py). Never decides what follows when nobody knows a name (`exchange.py` does).
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeGuard

import orjson

from epd.api.names import Role
from epd.proxy.course import in_task
from epd.proxy.encoding import Encoding
from epd.proxy.fetching import Fetched, fetch
from epd.proxy.metrics import Metrics
from epd.proxy.models import MODELS_KEY, MODELS_SECONDS
from epd.proxy.parsed import ParsedRequest
from epd.proxy.primers import Encoded, EncodeFailure, EncodeOrder
from epd.proxy.requests import CHAT_PATH, MODELS_PATH
from epd.proxy.rotation import Rotation
from epd.proxy.transport import Call, Transport, TransportError

log = logging.getLogger(__name__)

UNKNOWN_MODEL: Final = "unknown-model"
"""Reason of a failure, and of a fallback for it: no encoder knows the model's name."""
NO_ROUTE: Final = "no-route"
"""What is taken for an encoder has no chat completions."""

LIST_SECONDS: Final = 10.0
"""How long a list of models counts: clients that make names up cost the prefill side one question in that time, and an
adapter that is loaded at run time is found after it."""

NOT_FOUND: Final = 404


@dataclass(slots=True)
class _List:
    """The models of one pairing's prefill side: adapters with their base models, other names with None.

    It counts until `until`; `failed` is when it was last asked for in vain.
    """

    parents: Mapping[str, str | None] = field(default_factory=dict)
    until: float = -math.inf
    failed: float = -math.inf
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True)
class _Bases:
    """Adapters that the encoders of one pairing don't know, with their base models."""

    encoders: tuple[str, ...]
    names: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Complaint:
    """Encoders answer 404 where they should not: for `model`, if `cause` is UNKNOWN_MODEL, or for everything."""

    cause: str
    model: str

    def __str__(self) -> str:
        if self.cause == NO_ROUTE:
            return f"answer 404 for {CHAT_PATH}: they are no vLLM servers; look at their image and command"
        return (
            f"answer 404 for the model {self.model}, which the prefill side serves: start both with the same "
            "--served-model-name"
        )


class Adapters:
    """Encodes as `Encoding` does."""

    def __init__(
        self,
        *,
        encoding: Encoding,
        transport: Transport,
        rotation: Rotation,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._encoding = encoding
        self._transport = transport
        self._rotation = rotation
        self._metrics = metrics
        self._clock = clock
        self._lists: dict[str, _List] = {}
        self._bases: dict[str, _Bases] = {}
        self._version = -1
        self._complaints: dict[str, Complaint] = {}

    def complaints(self) -> Mapping[str, Complaint]:
        """What is wrong with encoders, by pairing."""
        self._follow()
        return self._complaints

    async def encode(self, order: EncodeOrder) -> list[Encoded | EncodeFailure]:
        """Encode all items, by the base model's name if the encoders don't know the request's own."""
        if self._bases or self._complaints:
            order = replace(order, request=self.known(order.request, order.pairing))
        results = await self._encoding.encode(order)
        if not any(_is_missing(result) for result in results):
            if self._complaints:
                self._withdraw(order, results)
            return results
        if any(_is_missing(result) and not _is_unknown(result) for result in results):
            self._complain(order.pairing, NO_ROUTE, "")
            return results
        name = order.request.model
        parents = await self._models(order) or {}
        base = parents.get(name)
        if base is not None:
            self._learn(order.pairing, name, base)
            name = base
            results = await self._encoding.encode(replace(order, request=order.request.of_model(name)))
        if not any(_is_unknown(result) for result in results):
            return results
        if name in parents:
            # else it is the client who made a mistake
            self._complain(order.pairing, UNKNOWN_MODEL, name)
        return [replace(result, reason=UNKNOWN_MODEL) if _is_unknown(result) else result for result in results]

    def hinted(self, request: ParsedRequest, pairing: str) -> int:
        """How many items of `request` need no encoder of `pairing`."""
        return self._encoding.hinted(self.known(request, pairing) if self._bases else request, pairing)

    def forget(self, request: ParsedRequest, pairing: str) -> None:
        """The items of `request` were not where they should be: they get primers again."""
        self._encoding.forget(self.known(request, pairing), pairing)

    def known(self, request: ParsedRequest, pairing: str) -> ParsedRequest:
        """The request with the name under which the encoders of `pairing` know its model, as far as that is known."""
        self._follow()
        bases = self._bases.get(pairing)
        base = bases.names.get(request.model) if bases is not None else None
        return request if base is None else request.of_model(base)

    def _learn(self, pairing: str, name: str, base: str) -> None:
        log.info("encoders of pairing %s have no adapter %s: its media are encoded as %s", pairing, name, base)
        self._bases.setdefault(pairing, _Bases(self._encoders(pairing))).names[name] = base

    def _complain(self, pairing: str, cause: str, name: str) -> None:
        self._metrics.encoders_misconfigured(cause)
        complaint = Complaint(cause, name)
        if self._complaints.get(pairing) == complaint:
            return
        self._complaints[pairing] = complaint
        log.warning("encoders of pairing %s %s", pairing, complaint)

    def _withdraw(self, order: EncodeOrder, results: Sequence[Encoded | EncodeFailure]) -> None:
        """Take a complaint back once encoders do what it was about."""
        complaint = self._complaints.get(order.pairing)
        if complaint is None or complaint.model not in ("", order.request.model):
            return
        if any(isinstance(result, Encoded) for result in results):
            del self._complaints[order.pairing]

    def _follow(self) -> None:
        """Forget what was learnt of encoders that are others now."""
        version = self._rotation.members.version
        if version == self._version:
            return
        self._version = version
        same = {pairing for pairing, bases in self._bases.items() if self._encoders(pairing) == bases.encoders}
        self._bases = {pairing: bases for pairing, bases in self._bases.items() if pairing in same}
        pairings = self._rotation.members.pairings(Role.ENCODE)
        self._complaints = {pairing: said for pairing, said in self._complaints.items() if pairing in pairings}
        self._lists = {pairing: known for pairing, known in self._lists.items() if pairing in pairings}

    def _encoders(self, pairing: str) -> tuple[str, ...]:
        return tuple(member.name for member in self._rotation.members.ready(Role.ENCODE, pairing))

    async def _models(self, order: EncodeOrder) -> Mapping[str, str | None] | None:
        """What the prefill side lists, asked for once at a time; None where it can't be had."""
        begun = self._clock()
        known = self._lists.setdefault(order.pairing, _List())
        async with known.asking:
            if known.until > self._clock():
                return known.parents
            if known.failed >= begun:
                # else each who waited would wait once more, one after another
                return None
            parents = await self._ask(order)
            if parents is None:
                known.failed = self._clock()
                return None
            known.parents, known.until = parents, self._clock() + LIST_SECONDS
            return parents

    async def _ask(self, order: EncodeOrder) -> Mapping[str, str | None] | None:
        engine = self._rotation.prefill(MODELS_KEY, pairing=order.pairing)
        if engine is None:
            return None
        call = Call(address=engine.address, path=MODELS_PATH, method="GET", headers=order.headers)
        try:
            # asyncio's timeouts need a Task
            answer = await in_task(_in_time(self._transport, call))
        except (TransportError, TimeoutError):
            return None
        return read_models(answer.body) if answer.status == 200 else None


async def _in_time(transport: Transport, call: Call) -> Fetched:
    async with asyncio.timeout(MODELS_SECONDS):
        return await fetch(transport, call)


def read_models(answer: bytes) -> Mapping[str, str | None] | None:
    """Read a list of models: each with the base model that it adapts, if any. None if it is no such list."""
    try:
        cards = orjson.loads(answer)["data"]
        return {str(card["id"]): card.get("parent") and str(card["parent"]) for card in cards}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _is_missing(result: Encoded | EncodeFailure) -> TypeGuard[EncodeFailure]:
    return isinstance(result, EncodeFailure) and result.status == NOT_FOUND


def _is_unknown(result: Encoded | EncodeFailure) -> TypeGuard[EncodeFailure]:
    """Whether a 404 is about the model, rather than about the path (vLLM entrypoints/serve/engine/serving.py)."""
    if not _is_missing(result):
        return False
    try:
        error = orjson.loads(result.body)["error"]
    except (ValueError, KeyError, TypeError):
        return False
    return isinstance(error, dict) and error.get("type") == "NotFoundError"
