"""Which engines requests should stay away from for a while, by what became of earlier requests.

Pure, with the clock given. Knows nothing of pods' conditions (`pods.py` does) and never chooses an engine: where all
are out, `rotation.py` takes them all.

Passive ejection as Envoy's outlier detection has it, with half-open probes as a circuit breaker has them: the kubelet
finds a dead engine after its readiness probe failed three times, half a minute by default; requests find it at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from epd.api.names import Role
from epd.proxy.pods import Member, Members
from epd.proxy.routing import FULL_SHARE
from epd.proxy.transport import Cause

FIRST_EJECTION_SECONDS: Final = 1.0
"""A restarted HTTP server listens again within about a second."""
LAST_EJECTION_SECONDS: Final = 30.0
"""As long as the default readiness probe takes to find the same (10 s, three times)."""

SUSPICION_UNTIL_OUT: Final = 10
_SUSPICION: Final = {
    # nobody listens: no request can be the reason
    Cause.REFUSED: SUSPICION_UNTIL_OUT,
    # twice in a row: once, it may have been a connection that was being closed, or a request that takes too long
    Cause.DISCONNECTED: SUSPICION_UNTIL_OUT // 2,
    Cause.PROTOCOL: SUSPICION_UNTIL_OUT // 2,
    Cause.TIMEOUT: SUSPICION_UNTIL_OUT // 2,
    # five times in a row, Envoy's default: one bad request may be the reason, but an engine that fails fast has the
    # least in flight and would draw all the others
    Cause.STATUS: SUSPICION_UNTIL_OUT // 5,
    Cause.STREAM_ERROR: SUSPICION_UNTIL_OUT // 5,
}
"""How much each failure in a row counts. One of the proxy's own says nothing of an engine."""

_PERHAPS_OF_REQUESTS: Final = frozenset({Cause.STATUS, Cause.STREAM_ERROR})
"""Causes that one client may bring about again and again, on every engine."""
OUT_ONE_IN: Final = 2
"""For those causes one in so many engines of a role and pairing may be out: whoever repeats a bad request takes half of
them from others at most. One always may, as with Envoy's `max_ejection_percent`: the only engine of a pairing gets what
needs it anyway, and the first pod of a new version, if it fails fast, must not draw what old ones could answer."""

SLOW_START_SECONDS: Final = 10.0
"""An engine's first requests compile kernels and fill caches; least in-flight would send it all there is meanwhile."""
LEAST_SHARE: Final = 0.1
"""Envoy's default `min_weight_percent` of slow start."""


class State(StrEnum):
    """What requests know of an engine."""

    HEALTHY = "healthy"
    EJECTED = "ejected"
    HALF_OPEN = "half-open"


@dataclass(slots=True)
class _Record:
    """An engine whose last request failed. Once `ejections` is not zero, it is out until `until`, then on trial.

    A trial pushes `until` out by the same time again: a request may take minutes, or its client leave, and neither may
    keep the engine out for as long.
    """

    suspicion: int = 0
    ejections: int = 0
    until: float = 0.0
    on_trial: bool = False

    @property
    def period(self) -> float:
        return min(LAST_EJECTION_SECONDS, FIRST_EJECTION_SECONDS * 2.0 ** (self.ejections - 1))


class Health:
    """Engines by name. `on_ejected` is called with the role of each that is put out."""

    def __init__(
        self,
        members: Members,
        *,
        on_ejected: Callable[[Role], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._members = members
        self._on_ejected = on_ejected
        self._clock = clock
        self._records: dict[str, _Record] = {}
        self._started: dict[str, float] = {}
        """When the engines that start slowly came into rotation."""
        self._ready: dict[str, Member] | None = None
        """Those in rotation at the last look; None before the first members were known."""
        self._version = -1
        self._follow()

    def calm(self) -> bool:
        """Whether there is nothing to say of any engine, as nearly always."""
        self._follow()
        return not self._records and not self._started

    def admits(self, name: str) -> bool:
        """Whether the engine may get a request now: it is not out, or may have a trial."""
        record = self._records.get(name)
        return record is None or not record.ejections or self._clock() >= record.until

    def shares(self) -> Mapping[str, float]:
        """The engines that take less than a full share, by 0 to 1: a tenth at first, then growing to all in 10 s."""
        if not self._started:
            return FULL_SHARE
        now = self._clock()
        self._started = {name: at for name, at in self._started.items() if now - at < SLOW_START_SECONDS}
        return {name: max(LEAST_SHARE, (now - at) / SLOW_START_SECONDS) for name, at in self._started.items()}

    def sent(self, name: str) -> None:
        """A request goes to the engine; a trial, if it was out and its time is over."""
        if not self._records:
            return
        record = self._records.get(name)
        if record is not None and record.ejections and (now := self._clock()) >= record.until:
            record.on_trial = True
            record.until = now + record.period

    def succeeded(self, name: str) -> None:
        """The engine did as it was asked, or had a good reason not to."""
        if self._records:
            self._records.pop(name, None)

    def failed(self, name: str, cause: Cause) -> None:
        """The engine failed. While it is out only a trial counts: what else fails there fails of what is known."""
        self._follow()
        member = (self._ready or {}).get(name)
        if member is None or cause is Cause.LOCAL:
            # it is gone by now, or was never asked
            return
        record = self._records.setdefault(name, _Record())
        if record.ejections and not record.on_trial:
            return
        record.suspicion += _SUSPICION[cause]
        if record.on_trial or (record.suspicion >= SUSPICION_UNTIL_OUT and self._may_put_out(member, cause)):
            record.ejections += 1
            record.on_trial = False
            record.until = self._clock() + record.period
            self._on_ejected(member.role)

    def state(self, name: str) -> State:
        """What to show of the engine."""
        record = self._records.get(name)
        if record is None or not record.ejections:
            return State.HEALTHY
        return State.HALF_OPEN if record.on_trial or self._clock() >= record.until else State.EJECTED

    def _may_put_out(self, member: Member, cause: Cause) -> bool:
        if cause not in _PERHAPS_OF_REQUESTS:
            return True
        equals = self._members.ready(member.role, member.pairing)
        out = sum(bool((record := self._records.get(one.name)) and record.ejections) for one in equals)
        return out < max(1, len(equals) // OUT_ONE_IN)

    def _follow(self) -> None:
        """Forget engines that left the rotation, however they come back; note which came.

        Those of the first list start at full share: they were there before this proxy was.
        """
        if self._version == self._members.version:
            return
        known, self._version = self._ready, self._members.version
        now = self._clock()
        ready = {member.name: member for role in Role for member in self._members.ready(role)}
        self._records = {name: record for name, record in self._records.items() if name in ready}
        self._started = {name: at for name, at in self._started.items() if name in ready}
        if known is not None:
            self._started |= dict.fromkeys(ready.keys() - known.keys(), now)
        self._ready = ready if self._members.synced else None
