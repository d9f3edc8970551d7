"""The course of one request: primers, policy, prefill side, answer.

Written against `transport.py`, so it runs without sockets. Never reads pods or configuration by itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from epd.api.names import Role
from epd.proxy.adapters import Adapters
from epd.proxy.admission import Admission
from epd.proxy.arrival import Arrival
from epd.proxy.attempts import Attempts, Outcome
from epd.proxy.connectors import SHARING, Connector, Sharing
from epd.proxy.course import in_task
from epd.proxy.demand import Demand, Held
from epd.proxy.encoding import Encoding
from epd.proxy.errors import EncoderUnavailableError, ExhaustedError, UnavailableError
from epd.proxy.health import Health
from epd.proxy.hints import Hints
from epd.proxy.legs import Legs
from epd.proxy.metrics import Metrics
from epd.proxy.models import MODELS_KEY, Models
from epd.proxy.pods import Member, Members
from epd.proxy.prefill import PrefillSide, passed_on
from epd.proxy.primed import NOTHING, Primed
from epd.proxy.primers import EncodeFailure, EncodeOrder
from epd.proxy.pushing import Pushing
from epd.proxy.record import Trail
from epd.proxy.rewrite import without_pixels
from epd.proxy.rotation import Rotation
from epd.proxy.routes import TWO_LEGS
from epd.proxy.routing import InFlight
from epd.proxy.settings import EncoderFailurePolicy, Limits
from epd.proxy.stored import made_by
from epd.proxy.transport import Cause, Reply, Transport

# asked of every request, and in Python 3.11 a member is found through its class ten times slower
_DECODE: Final = Role.DECODE
_LOCAL: Final = Cause.LOCAL

PAIRING_GONE: Final = "pairing-gone"
"""Reason of a fallback: the items were encoded, but no prefill-side engine of that pairing is left."""
RESENT: Final = "resent"
"""Reason of a fallback: the items were encoded, but an engine that got no media failed; then it got them."""


class Exchange:
    """Answers requests. `encodes` says whether the topology has encoders, `rewrites` whether media may be left out.

    `split` says that prefill and decode are engines of their own.
    """

    def __init__(
        self,
        *,
        encodes: bool,
        rewrites: bool,
        policy: EncoderFailurePolicy,
        limits: Limits,
        transport: Transport,
        members: Members,
        load: InFlight,
        metrics: Metrics,
        connector: Connector = Connector.EXAMPLE,
        hint_seconds: float = 0,
        split: bool = False,
    ) -> None:
        self._encodes = encodes
        self._rewrites = rewrites
        self._policy = policy
        self._metrics = metrics
        self._demand = Demand(metrics=metrics, limit=limits.max_fallback_encodes)
        self.health = Health(members, on_ejected=metrics.ejected)
        answering = Role.DECODE if split else Role.PREFILL_DECODE
        bound = limits.max_in_flight_per_engine
        self._rotation = rotation = Rotation(
            members=members, load=load, health=self.health, bound=bound, answering=answering
        )
        self.admission = Admission(rotation=rotation, limit=limits.queue, seconds=limits.queue_seconds, metrics=metrics)
        sharing = SHARING[connector]
        encoding = _encoding(transport, rotation, limits, metrics, sharing, hints=Hints(seconds=hint_seconds))
        self.adapters = Adapters(encoding=encoding, transport=transport, rotation=rotation, metrics=metrics)
        self._attempts = attempts = _attempts(transport, rotation, limits, metrics, split=split)
        self._pushing: Pushing | None = None
        if sharing.pushed:
            self._pushing = Pushing(prime=self._prime_for, attempts=attempts, rotation=rotation, rewrites=rewrites)
        self._models = Models(transport=transport, rotation=rotation)

    async def answer(self, arrival: Arrival) -> Reply:
        """Answer a completion. Raises ProxyError; a cancelled call leaves nothing running behind it."""
        previous = arrival.request.previous_response_id
        maker = None if previous is None else made_by(previous, self._rotation.answering(), arrival.tenant)
        if self._encodes and arrival.request.items:
            return await self._answer_media(arrival, maker)
        # what has no media, or media of which the prefill side takes care
        if maker is not None:
            return await self._answer_by(arrival, await self._room_at(maker, arrival))
        key = arrival.key
        target = self._rotation.prefill(key, bounded=True) or await self._choose(
            key, arrival.client, None, arrival.trail
        )
        return self._finish(await self._attempts.ask(arrival, target, None), arrival, NOTHING, None)

    async def stored(self, arrival: Arrival, response_id: str) -> Reply:
        """Have the engine that made a response answer what is asked of it. Raises ProxyError.

        It waits for no room: reading, deleting and cancelling take no place in the engine's batch, and what waits for
        room may be waiting for just that to be cancelled.
        """
        maker = made_by(response_id, self._rotation.answering(), arrival.tenant)
        return await self._answer_by(arrival, maker)

    async def models(self, *, headers: Mapping[str, str], client: str = "", trail: Trail | None = None) -> Reply:
        """Answer `GET /v1/models` with what a prefill-side engine says; `client` waits its turn. Raises ProxyError."""
        first = await self._choose(MODELS_KEY, client, None, trail or Trail())
        if first is None:
            raise _no_engine()
        return await in_task(self._models.ask(first, headers))

    def can_answer(self) -> bool:
        """Whether a text request would find an engine now."""
        return self._rotation.serves()

    async def _answer_by(self, arrival: Arrival, maker: Member) -> Reply:
        outcome = await self._attempts.ask(arrival, maker, None, only=True)
        return self._finish(outcome, arrival, NOTHING, None)

    async def _answer_media(self, arrival: Arrival, maker: Member | None) -> Reply:
        first = maker or self._rotation.prefill(arrival.key, wants_encoders=True)
        spared = self.adapters.hinted(arrival.request, first.pairing) if first is not None else 0
        # it is demand for encoders also while nobody is there to use what they encode
        held = self._demand.of(len(arrival.request.items) - spared)
        try:
            if first is None:
                raise _no_engine()
            return await self._answer_primed(arrival, first, held, only=maker is not None)
        finally:
            held.let_go()

    async def _answer_primed(self, arrival: Arrival, first: Member, held: Held, *, only: bool) -> Reply:
        """Answer by the pairing of `first`; by that engine alone if `only` it can."""
        if not self._rotation.has_room(first) and (only or not self._has_room(arrival, first.pairing)):
            # what would not even find a place to wait in is not encoded
            self.admission.check(arrival.client)
        if self._pushing is not None:
            return await self._answer_pushed(self._pushing, arrival, first, held, only=only)
        fallback = None
        primed = await self._prime(arrival, first.pairing)
        if primed.failure is None:
            held.settle()
        elif (refusal := self._refusal(primed.failure)) is not None:
            return refusal
        else:
            fallback = held.fall_back(primed.failure.reason)
        pairing = first.pairing if primed.encoders else None
        if only:
            first = await self._room_at(first, arrival)
            outcome = await self._attempts.ask(primed.told(arrival), first, pairing, only=True)
        else:
            outcome, fallback = await self._ask(arrival, pairing, primed, fallback, held)
        return self._finish(outcome, arrival, primed, fallback)

    def _has_room(self, arrival: Arrival, pairing: str) -> bool:
        return self._rotation.prefill(arrival.key, pairing=pairing, bounded=True) is not None

    async def _answer_pushed(
        self, pushing: Pushing, arrival: Arrival, first: Member, held: Held, *, only: bool
    ) -> Reply:
        """Answer by `first` if `only` this one can, else by one of its pairing that has room."""
        target = None if only else await self._choose(arrival.key, arrival.client, first.pairing, arrival.trail)
        if only:
            target = await self._room_at(first, arrival)
        if target is None:
            raise _no_engine()
        outcome, primed = await pushing.ask(arrival, target, only=only, on_encoded=held.settle)
        if primed.failure is not None:
            return self._refused(primed.failure, "engines that are pushed to can't encode")
        return self._finish(outcome, arrival, primed, None)

    async def _choose(self, key: str, client: str, pairing: str | None, trail: Trail) -> Member | None:
        """Choose an engine of the prefill side that has room, after a while in the queue if need be."""

        def choose(bounded: bool) -> Member | None:
            return self._rotation.prefill(key, pairing=pairing, bounded=bounded)

        member = choose(True)
        if member is not None or choose(False) is None:
            return member
        return await self.admission.wait(client, choose, trail, only=pairing or "")

    async def _room_at(self, maker: Member, arrival: Arrival) -> Member:
        """Wait until the engine that made the response that is continued has room. Raises ProxyError."""
        placed = await self.admission.room_at(maker, arrival.client, arrival.trail)
        previous = arrival.request.previous_response_id or ""
        return placed or made_by(previous, self._rotation.answering(), arrival.tenant)

    async def _ask(
        self, arrival: Arrival, pairing: str | None, primed: Primed, fallback: str | None, held: Held
    ) -> tuple[Outcome, str | None]:
        """Have the request answered by the prefill side of `pairing`, if given; and the reason of a fallback by now."""
        told = primed.told(arrival)
        bare = None
        if self._rewrites and primed.failure is None:
            bare = without_pixels(told.request, primed.reported)
        # chosen only now: while the encoders worked, pods came, went and got busy
        target = await self._choose(arrival.key, arrival.client, pairing, arrival.trail)
        outcome = await self._attempts.ask(told, target, pairing, bare=bare)
        resent = outcome.resent
        if resent and pairing is not None:
            self.adapters.forget(arrival.request, pairing)
        if outcome.deserted and pairing is not None and self._policy is EncoderFailurePolicy.FALLBACK:
            stranger = self._rotation.prefill(arrival.key, avoided=pairing)
            if stranger is not None:
                fallback = fallback or held.fall_back(PAIRING_GONE)
                if outcome.attempt is not None and outcome.attempt.cause is not None:
                    self._metrics.retried(stranger.role, outcome.attempt.cause)
                    arrival.trail.retried(stranger.role, outcome.attempt.cause)
                failed_on = outcome.failed_on
                outcome = await self._attempts.ask(arrival, stranger, stranger.pairing, failed_on=failed_on)
        if resent and fallback is None:
            # takes no place among those that are bounded: it costs what media that are always sent would cost
            fallback = RESENT
            self._metrics.fallback(RESENT)
        return outcome, fallback

    def _finish(self, outcome: Outcome, arrival: Arrival, primed: Primed, fallback: str | None) -> Reply:
        attempt, member = outcome.attempt, outcome.member
        if attempt is None or member is None:
            raise _no_engine()
        if attempt.cause is _LOCAL:
            raise ExhaustedError
        if attempt.reply is None:
            raise UnavailableError(f"engine {member.name} does not answer", code="engine_unavailable")
        headers = attempt.reply.headers
        # where prefill is an engine of its own, it has its name there already
        headers.setdefault("x-epd-prefill", member.name)
        if member.role is _DECODE:
            headers["x-epd-decode"] = member.name
        headers["x-epd-encode"] = "fallback" if fallback else "encoded" if primed.encoders else "none"
        if member.model_version:
            headers["x-epd-model-version"] = member.model_version
        if primed is not NOTHING:
            headers.update(primed.headers())
        if attempt.reply.stream is not None:
            arrival.trail.first_token = time.monotonic() - arrival.arrived
            self._metrics.first_token(arrival.trail.first_token)
        return attempt.reply

    async def _prime_for(self, arrival: Arrival, engine: Member) -> Primed:
        return await self._prime(arrival, engine.pairing, engine.push_address)

    async def _prime(self, arrival: Arrival, pairing: str, consumer: str = "") -> Primed:
        order = EncodeOrder(
            request=arrival.request,
            pairing=pairing,
            request_id=arrival.request_id,
            headers=arrival.headers,
            trail=arrival.trail,
            consumer=consumer,
        )
        return Primed.of(await self.adapters.encode(order))

    def _refusal(self, failure: EncodeFailure) -> Reply | None:
        """Apply the policy: None under Fallback, else the encoder's own refusal of the request, or 503."""
        if self._policy is EncoderFailurePolicy.FALLBACK:
            return None
        return self._refused(failure, "spec.proxy.encoderFailurePolicy is Fail")

    def _refused(self, failure: EncodeFailure, why: str) -> Reply:
        if failure.status is not None and 400 <= failure.status < 500:
            return Reply(status=failure.status, headers=passed_on(failure.headers), body=failure.body)
        if failure.reason == Cause.LOCAL:
            raise ExhaustedError
        raise EncoderUnavailableError(f"no encoder could encode the media ({failure.reason}) and {why}")


def _encoding(
    transport: Transport, rotation: Rotation, limits: Limits, metrics: Metrics, sharing: Sharing, *, hints: Hints
) -> Encoding:
    seconds = limits.encode_seconds
    return Encoding(
        transport=transport, rotation=rotation, metrics=metrics, attempt_seconds=seconds, sharing=sharing, hints=hints
    )


def _attempts(transport: Transport, rotation: Rotation, limits: Limits, metrics: Metrics, *, split: bool) -> Attempts:
    one = PrefillSide(transport=transport, load=rotation.load, idle_seconds=limits.idle_seconds)
    side = Legs(transport=transport, decode=one, rotation=rotation, metrics=metrics) if split else one
    return Attempts(prefill_side=side, rotation=rotation, metrics=metrics, chained=TWO_LEGS if split else ())


def _no_engine() -> UnavailableError:
    return UnavailableError("no engine of the prefill side is ready")
