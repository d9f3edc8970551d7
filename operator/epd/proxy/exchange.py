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

MODELS_SECONDS: Final = 10
"""The list of models is in the engine's memory; this survives an event loop that is busy with a large picture."""
SHOWN_IDENTIFIERS: Final = 32
"""Identifiers in `x-epd-items`: with 65 characters each they take half of the 4 KiB that NGINX by default has for all
headers; a request may have hundreds of items."""


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


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The last attempt at the prefill side, if there was an engine; `alone` says that there was no second one."""

    attempt: Attempt | None = None
    member: Member | None = None
    alone: bool = True

    @property
    def replied(self) -> bool:
        return self.attempt is not None and self.attempt.reply is not None

    @property
    def deserted(self) -> bool:
        """Whether the engines that were asked failed in a way that others need not: gone, or the only one and ill."""
        failed = self.attempt is None or self.attempt.cause is not None
        return failed and (self.alone or not self.replied)


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
        failed: set[str] = set()
        for _ in range(2):
            member = choose_prefill("models", self._members.ready(Role.PREFILL_DECODE), self._load, excluded=failed)
            if member is None:
                break
            call = Call(address=member.address, path=MODELS_PATH, method="GET", headers=headers)
            try:
                async with asyncio.timeout(MODELS_SECONDS):
                    answer = await self._transport.send(call)
                    try:
                        body = await answer.read()
                    finally:
                        answer.close()
                return Reply(status=answer.status, headers=_content_type(answer.headers), body=body)
            except (TransportError, TimeoutError):
                failed.add(member.name)
        if failed:
            raise UnavailableError(f"{', '.join(sorted(failed))}: no answer", code="engine_unavailable")
        raise _no_engine()

    def can_answer(self) -> bool:
        """Whether a text request would find an engine now."""
        return bool(self._members.ready(Role.PREFILL_DECODE))

    async def _answer(self, arrival: Arrival, held: ExitStack) -> Reply:
        wants_encoders = self._encodes and bool(arrival.request.items)
        if wants_encoders:
            # first of all: it is demand for encoders also while nobody is there to use what they encode
            self._want(len(arrival.request.items), held)
        first = self._choose(arrival, wants_encoders=wants_encoders)
        if first is None:
            raise _no_engine()
        primed = _Primed()
        fallback = None
        if wants_encoders:
            primed = await self._prime(arrival, first.pairing)
            if primed.failure is None:
                held.close()
            elif (refusal := self._refusal(primed.failure)) is not None:
                return refusal
            else:
                fallback = self._take_fallback(primed.failure.reason, held)
        # chosen only now: while the encoders worked, pods came, went and got busy
        pairing = first.pairing if primed.encoders else None
        outcome = await self._ask(arrival, self._choose(arrival, pairing=pairing), pairing)
        if outcome.deserted and pairing is not None and self._policy is EncoderFailurePolicy.FALLBACK:
            stranger = self._choose(arrival, avoided=pairing)
            if stranger is not None:
                fallback = fallback or self._take_fallback(PAIRING_GONE, held)
                if outcome.attempt is not None and outcome.attempt.cause is not None:
                    self._metrics.retried(stranger.role, outcome.attempt.cause)
                outcome = await self._ask(arrival, stranger, stranger.pairing, again=not outcome.replied)
        return self._finish(outcome, arrival, primed, fallback)

    async def _ask(
        self, arrival: Arrival, target: Member | None, pairing: str | None, *, again: bool = True
    ) -> _Outcome:
        """Try `target`, then once more: another engine, or the same one if only its connection broke."""
        if target is None:
            return _Outcome()
        attempt = await self._prefill_side.attempt(arrival, target)
        if attempt.cause is None or not again:
            return _Outcome(attempt, target)
        other = self._choose(arrival, pairing=pairing, excluded=target.name)
        alone = other is None
        if other is None and attempt.cause is Cause.DISCONNECTED:
            other = target
        if other is not None:
            self._metrics.retried(other.role, attempt.cause)
            attempt, target = await self._prefill_side.attempt(arrival, other), other
        return _Outcome(attempt, target, alone=alone)

    def _finish(self, outcome: _Outcome, arrival: Arrival, primed: _Primed, fallback: str | None) -> Reply:
        attempt, member = outcome.attempt, outcome.member
        if attempt is None or member is None:
            raise _no_engine()
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
            headers["x-epd-items"] = ",".join(primed.identifiers[:SHOWN_IDENTIFIERS])
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
        self,
        arrival: Arrival,
        *,
        pairing: str | None = None,
        avoided: str | None = None,
        excluded: str = "",
        wants_encoders: bool = False,
    ) -> Member | None:
        """Choose an engine: of `pairing` if given, never of the pairing `avoided`, never the one named `excluded`."""
        members = [
            member
            for member in self._members.ready(Role.PREFILL_DECODE)
            if member.pairing != avoided and pairing in (None, member.pairing)
        ]
        encoders = {m.pairing for m in self._members.ready(Role.ENCODE)} if wants_encoders else None
        return choose_prefill(arrival.request_id, members, self._load, excluded={excluded}, encoder_pairings=encoders)


def _no_engine() -> UnavailableError:
    return UnavailableError("no engine of the prefill side is ready")


def _content_type(headers: Mapping[str, str]) -> dict[str, str]:
    return {"content-type": headers.get("content-type", "application/json")}
