"""The course of a request with media where encoders push embeddings to the engine that is to answer.

That engine is chosen first, keeps a place for the request meanwhile, and no other can answer with what was pushed: a
second try has everything encoded again, for its own engine. Applies no policy, and there is none to apply: an engine of
this kind can't encode by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from epd.proxy.arrival import Arrival
from epd.proxy.attempts import Attempts, Outcome
from epd.proxy.errors import EncoderUnavailableError
from epd.proxy.pods import Member
from epd.proxy.primed import Primed
from epd.proxy.rewrite import without_pixels
from epd.proxy.rotation import Rotation

Prime = Callable[[Arrival, Member], Awaitable[Primed]]
"""Has the media of a request encoded for an engine."""


class Pushing:
    """Answers requests. `rewrites` says whether media may be left out."""

    def __init__(self, *, prime: Prime, attempts: Attempts, rotation: Rotation, rewrites: bool) -> None:
        self._prime = prime
        self._attempts = attempts
        self._load = rotation.load
        self._rewrites = rewrites

    async def ask(
        self, arrival: Arrival, target: Member, *, only: bool, on_encoded: Callable[[], object]
    ) -> tuple[Outcome, Primed]:
        """Have the request answered by `target`, or after a failure by another engine unless `only` this one can.

        The outcome is empty if its media could not be encoded. Raises EncoderUnavailableError if they could not be
        encoded again.
        """
        primed = await self._prime_for(arrival, target)
        if primed.failure is not None:
            return Outcome(), primed
        encoders = dict.fromkeys(primed.encoders)

        async def anew(other: Member) -> Arrival:
            again = await self._prime_for(arrival, other)
            if again.failure is not None:
                raise EncoderUnavailableError(f"the media could not be encoded again ({again.failure.reason})")
            encoders.update(dict.fromkeys(again.encoders))
            return again.told(arrival)

        on_encoded()
        told = primed.told(arrival)
        bare = without_pixels(told.request, primed.reported) if self._rewrites else None
        outcome = await self._attempts.ask(told, target, target.pairing, bare=bare, only=only, renew=anew)
        return outcome, replace(primed, encoders=tuple(encoders))

    async def _prime_for(self, arrival: Arrival, member: Member) -> Primed:
        # counted from now on, so that nobody else is given its place
        self._load.begin(member.name)
        try:
            primed = await self._prime(arrival, member)
        except BaseException:
            self._load.give_up(member.name)
            raise
        if primed.failure is not None:
            self._load.give_up(member.name)
        else:
            self._load.withdraw(member.name)
        return primed
