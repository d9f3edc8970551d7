"""The course of one request: primers, policy, prefill side with one retry, answer.

Written against `transport.py`, so it runs without sockets. Never reads pods or configuration by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from epd.api.names import Role
from epd.proxy.encoding import Encoded, EncodeFailure, EncodeOrder, Encoding
from epd.proxy.errors import (
    EncoderUnavailableError,
    FallbackLimitError,
    RequestTimeoutError,
    UnavailableError,
)
from epd.proxy.metrics import Metrics
from epd.proxy.pods import Member, Members
from epd.proxy.prefill import Arrival, Attempt, PrefillSide
from epd.proxy.requests import MODELS_PATH
from epd.proxy.routing import InFlight, choose_prefill
from epd.proxy.settings import EncoderFailurePolicy, Limits
from epd.proxy.transport import Call, Cause, Reply, Transport, TransportError

PAIRING_GONE: Final = "pairing-gone"
"""Reason of a fallback: the items were encoded, but no prefill-side engine of that pairing is left."""


@dataclass(frozen=True, slots=True)
class _Primed:
    """What became of a request's media."""

    encoders: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    failure: EncodeFailure | None = None

    @staticmethod
    def of(results: list[Encoded | EncodeFailure]) -> _Primed:
        encoded = [result for result in results if isinstance(result, Encoded)]
        failures = [result for result in results if isinstance(result, EncodeFailure)]
        # a refusal by an encoder says more than a broken connection
        failures.sort(key=lambda failure: failure.status is None)
        return _Primed(
            encoders=tuple(dict.fromkeys(result.encoder for result in encoded)),
            identifiers=tuple(dict.fromkeys(name for r in encoded for name in r.identifiers.values() if name)),
            failure=failures[0] if failures else None,
        )


class Exchange:
    """Answers requests. `encodes` says whether the topology has encoders."""

    def __init__(
        self,
        *,
        encodes: bool,
        policy: EncoderFailurePolicy,
        limits: Limits,
        transport: Transport,
        members: Members,
        load: InFlight,
        metrics: Metrics,
    ) -> None:
        self._encodes = encodes
        self._policy = policy
        self._limits = limits
        self._members = members
        self._load = load
        self._metrics = metrics
        self._transport = transport
        self._fallbacks = 0
        self._encoding = Encoding(
            transport=transport, members=members, load=load, metrics=metrics, attempt_seconds=limits.encode_seconds
        )
        self._prefill_side = PrefillSide(
            transport=transport, load=load, metrics=metrics, idle_seconds=limits.idle_seconds
        )

    async def answer(self, arrival: Arrival) -> Reply:
        """Answer a completion. Raises ProxyError; a cancelled call leaves nothing running behind it."""
        try:
            async with asyncio.timeout(arrival.deadline - time.monotonic()):
                with ExitStack() as held:
                    return await self._answer(arrival, held)
        except TimeoutError:
            raise RequestTimeoutError("the request took longer than spec.proxy.timeouts.request") from None

    async def models(self, *, headers: Mapping[str, str]) -> Reply:
        """Answer `GET /v1/models` with what a prefill-side engine says. Raises ProxyError."""
        member = choose_prefill("models", self._members.ready(Role.PREFILL_DECODE), self._load)
        if member is None:
            raise _no_engine()
        call = Call(address=member.address, path=MODELS_PATH, method="GET", headers=headers)
        try:
            async with asyncio.timeout(self._limits.encode_seconds):
                answer = await self._transport.send(call)
                try:
                    return Reply(status=answer.status, headers=_content_type(answer.headers), body=await answer.read())
                finally:
                    answer.close()
        except (TransportError, TimeoutError):
            raise UnavailableError(f"engine {member.name} does not answer", code="engine_unavailable") from None

    def can_answer(self) -> bool:
        """Whether a text request would find an engine now."""
        return bool(self._members.ready(Role.PREFILL_DECODE))

    async def _answer(self, arrival: Arrival, held: ExitStack) -> Reply:
        wants_encoders = self._encodes and bool(arrival.request.items)
        first = self._choose(arrival, wants_encoders=wants_encoders)
        if first is None:
            raise _no_engine()
        primed = _Primed()
        fallback = None
        if wants_encoders:
            self._want(len(arrival.request.items), held)
            primed = await self._prime(arrival, first.pairing)
            if primed.failure is None:
                held.close()
            elif (refusal := self._refusal(primed.failure)) is not None:
                return refusal
            else:
                fallback = self._take_fallback(primed.failure.reason, held)
        # chosen anew: while the encoders worked, pods came, went and got busy
        pairing = first.pairing if primed.encoders else None
        target = self._choose(arrival, pairing=pairing)
        if target is None and pairing is not None:
            pairing = None
            target = self._choose(arrival)
            if target is not None and fallback is None:
                fallback = self._take_fallback(PAIRING_GONE, held)
        if target is None:
            raise _no_engine()
        outcome = await self._with_retry(arrival, target, pairing)
        return self._finish(outcome, arrival, primed, fallback)

    async def _with_retry(self, arrival: Arrival, target: Member, pairing: str | None) -> tuple[Attempt, Member]:
        """Try `target`, then once more: another engine, or the same one if only its connection broke."""
        attempt = await self._prefill_side.attempt(arrival, target)
        if attempt.cause is None:
            return attempt, target
        other = self._choose(arrival, pairing=pairing, excluded=target.name)
        if other is None and attempt.cause is Cause.DISCONNECTED:
            other = target
        if other is None:
            return attempt, target
        self._metrics.retried(other.role, attempt.cause)
        return await self._prefill_side.attempt(arrival, other), other

    def _finish(
        self, outcome: tuple[Attempt, Member], arrival: Arrival, primed: _Primed, fallback: str | None
    ) -> Reply:
        attempt, member = outcome
        if attempt.reply is None:
            raise UnavailableError(f"engine {member.name} does not answer", code="engine_unavailable")
        headers = attempt.reply.headers
        headers["x-epd-prefill"] = member.name
        headers["x-epd-encode"] = "fallback" if fallback else "encoded" if primed.encoders else "none"
        if member.model_version:
            headers["x-epd-model-version"] = member.model_version
        if primed.encoders:
            headers["x-epd-encoders"] = ",".join(primed.encoders)
        if primed.identifiers:
            headers["x-epd-items"] = ",".join(primed.identifiers)
        if attempt.reply.stream is not None:
            self._metrics.first_token(time.monotonic() - arrival.arrived)
        return attempt.reply

    async def _prime(self, arrival: Arrival, pairing: str) -> _Primed:
        order = EncodeOrder(
            request=arrival.request, pairing=pairing, request_id=arrival.request_id, headers=arrival.headers
        )
        return _Primed.of(await self._encoding.encode(order))

    def _want(self, items: int, held: ExitStack) -> None:
        self._metrics.encode_wanted(items)
        held.callback(self._metrics.encode_settled, items)

    def _refusal(self, failure: EncodeFailure) -> Reply | None:
        """Apply the policy: None under Fallback, else the encoder's own refusal of the request, or 503."""
        if self._policy is EncoderFailurePolicy.FALLBACK:
            return None
        if failure.status is not None and 400 <= failure.status < 500:
            return Reply(status=failure.status, headers=_content_type(failure.headers), body=failure.body)
        raise EncoderUnavailableError(
            f"no encoder could encode the media ({failure.reason}) and spec.proxy.encoderFailurePolicy is Fail"
        )

    def _take_fallback(self, reason: str, held: ExitStack) -> str:
        if self._fallbacks >= self._limits.max_fallback_encodes:
            raise FallbackLimitError(
                f"no encoder could encode the media ({reason}), and spec.proxy.limits.maxFallbackEncodes requests "
                "already have theirs encoded by the prefill side"
            )
        self._fallbacks += 1
        held.callback(self._end_fallback)
        self._metrics.fallback(reason)
        return reason

    def _end_fallback(self) -> None:
        self._fallbacks -= 1

    def _choose(
        self, arrival: Arrival, *, pairing: str | None = None, excluded: str = "", wants_encoders: bool = False
    ) -> Member | None:
        members = self._members.ready(Role.PREFILL_DECODE)
        if pairing is not None:
            members = tuple(member for member in members if member.pairing == pairing)
        encoders = {m.pairing for m in self._members.ready(Role.ENCODE)} if wants_encoders else None
        return choose_prefill(arrival.request_id, members, self._load, excluded={excluded}, encoder_pairings=encoders)


def _no_engine() -> UnavailableError:
    return UnavailableError("no engine of the prefill side is ready")


def _content_type(headers: Mapping[str, str]) -> dict[str, str]:
    return {"content-type": headers.get("content-type", "application/json")}
