"""Has a request answered by the prefill side: chooses an engine, and another one when the first fails.

Applies no policy: what becomes of a request that both failed on is decided by `exchange.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from typing import Final

from epd.proxy.arrival import NOBODY, UNSEEN, Arrival, Attempt, Side
from epd.proxy.metrics import Metrics
from epd.proxy.pods import Member
from epd.proxy.rotation import Rotation
from epd.proxy.stored import RESPONSES_PATH, new_id, stored_as
from epd.proxy.transport import Cause

ENGINES_AT_RISK: Final = 2
"""Engines that one request may fail on: a request that kills engines must not walk through all of them."""

REFUSALS_OF_METADATA: Final = frozenset({400, 422})
"""How an engine refuses a body that makes no sense to it, be it for the metadata or for what the client wrote."""


@dataclass(slots=True, init=False)
class Outcome:
    """The last attempt, if there was an engine; `alone` says that there was no second one.

    `failed_on` names the engines that took the request and failed; `resent` says that the first of them got no media.
    """

    attempt: Attempt | None
    member: Member | None
    alone: bool
    failed_on: frozenset[str]
    resent: bool

    def __init__(
        self,
        attempt: Attempt | None = None,
        member: Member | None = None,
        *,
        alone: bool = True,
        failed_on: frozenset[str] = NOBODY,
        resent: bool = False,
    ) -> None:
        self.attempt = attempt
        self.member = member
        self.alone = alone
        self.failed_on = failed_on
        self.resent = resent

    @property
    def deserted(self) -> bool:
        """Whether the engines that were asked failed in a way that others need not: gone, or the only one and ill."""
        failed = self.attempt is None or self.attempt.cause is not None
        replied = self.attempt is not None and self.attempt.reply is not None
        return failed and (self.alone or not replied) and len(self.failed_on) < ENGINES_AT_RISK


Renew = Callable[[Member], Awaitable[Arrival]]
"""Makes a request ready for another engine, where what was made for one is of no use to others."""


class Attempts:
    """Makes one attempt or two per call of `ask`.

    `chained` names the paths on which a failure of the engine that answers may be that of one that prefilled for it.
    """

    def __init__(
        self, *, prefill_side: Side, rotation: Rotation, metrics: Metrics, chained: Collection[str] = NOBODY
    ) -> None:
        self._chained = chained
        self._prefill_side = prefill_side
        self._rotation = rotation
        self._health = rotation.health
        self._metrics = metrics

    async def ask(
        self,
        arrival: Arrival,
        target: Member | None,
        pairing: str | None,
        *,
        bare: bytes | None = None,
        failed_on: frozenset[str] = NOBODY,
        only: bool = False,
        renew: Renew | None = None,
    ) -> Outcome:
        """Try `target`, with the body `bare` of media if there is one; if it fails, try once more with everything.

        The second try goes to another engine, or to the same one if that need not be ill. `failed_on` names the engines
        that failed before; with `only` no other engine than the target can answer. With `renew` the second try
        has what that makes of the request.
        """
        if target is None:
            return Outcome(failed_on=failed_on)
        if bare is not None:
            self._metrics.rewritten()
        attempt = await self._prefill_side.attempt(self._sent(arrival, target), target, bare, failed_on=failed_on)
        self._judge(target, attempt, bare=bare is not None)
        cause = _failure(attempt, bare=bare is not None)
        if cause is None:
            return Outcome(attempt, target)
        taken = cause not in UNSEEN
        failed_on = _failed_on(attempt, target)
        # whether it has room or not: the request has had its turn, and no more of them come than were at the first
        elsewhere = None if only else self._rotation.prefill(arrival.key, pairing=pairing, excluded=(target.name,))
        alone = elsewhere is None
        other = elsewhere or (target if self._same_again(arrival, cause, bare=bare is not None) else None)
        if other is None or len(failed_on) >= ENGINES_AT_RISK:
            return Outcome(attempt, target, alone=alone, failed_on=failed_on)
        self._note_retry(arrival, other, cause, bare=bare is not None)
        if renew is not None:
            arrival = await renew(other)
        attempt = await self._prefill_side.attempt(self._sent(arrival, other), other, failed_on=failed_on)
        self._judge(other, attempt, bare=False)
        return Outcome(attempt, other, alone=alone, failed_on=attempt.failed_on, resent=bare is not None and taken)

    def _same_again(self, arrival: Arrival, cause: Cause, *, bare: bool) -> bool:
        """Whether the engine that failed may do better the second time."""
        if cause is Cause.DISCONNECTED or (bare and cause not in UNSEEN):
            return True
        return arrival.path in self._chained and cause in (Cause.STATUS, Cause.STREAM_ERROR)

    def _note_retry(self, arrival: Arrival, member: Member, cause: Cause, *, bare: bool) -> None:
        """Count that the request goes to `member`, with its media if they were left out at first."""
        self._metrics.retried(member.role, cause)
        arrival.trail.retried(member.role, cause)
        if bare:
            self._metrics.resent(cause)

    def _sent(self, arrival: Arrival, member: Member) -> Arrival:
        """The request as `member` is to get it, now."""
        self._health.sent(member.name)
        if arrival.path != RESPONSES_PATH:
            return arrival
        return replace(arrival, request=stored_as(arrival.request, new_id(member.name, arrival.tenant)))

    def _judge(self, member: Member, attempt: Attempt, *, bare: bool) -> None:
        """Note how `member` did; `bare`: without media."""
        if attempt.cause is None:
            self._health.succeeded(member.name)
        elif not bare or attempt.cause not in (Cause.STATUS, Cause.STREAM_ERROR):
            # without media it may have failed for an entry that is missing, which is not its fault
            self._health.failed(member.name, attempt.cause)


def _failure(attempt: Attempt, *, bare: bool) -> Cause | None:
    """Why an attempt has to be made again; a refusal of a body without media too, which may be for the metadata."""
    if bare and attempt.reply is not None and attempt.reply.status in REFUSALS_OF_METADATA:
        return Cause.STATUS
    return attempt.cause


def _failed_on(attempt: Attempt, member: Member) -> frozenset[str]:
    """The engines that an attempt at `member` that failed has failed on."""
    if attempt.cause is None:
        # it has refused the body without media, as an engine that is ill may
        return attempt.failed_on | {member.name}
    return attempt.failed_on
