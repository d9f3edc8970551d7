"""The engines that may get a request now: in rotation, well, and with room. Chooses among them by `routing.py`.

Never sends anything and never waits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from epd.api.names import Role
from epd.proxy.health import Health
from epd.proxy.pods import Member, Members
from epd.proxy.routing import FULL_SHARE, InFlight, choose_encoder, choose_prefill

_NOBODY: Final = frozenset[str]()
# asked for by every request, and in Python 3.11 a member is found through its class ten times slower
_ENCODE: Final = Role.ENCODE
_PREFILL: Final = Role.PREFILL
_DECODE: Final = Role.DECODE


class Rotation:
    """Engines to choose from. Those of the role `answering` are the prefill side: requests are answered by them.

    No more than `bound` requests go to one of these; 0 for any number.
    """

    def __init__(
        self,
        *,
        members: Members,
        load: InFlight,
        health: Health,
        bound: int,
        answering: Role = Role.PREFILL_DECODE,
    ) -> None:
        self.members = members
        self.load = load
        self.health = health
        self._bound = bound
        self._answering = answering

    def prefill(
        self,
        key: str,
        *,
        pairing: str | None = None,
        avoided: str | None = None,
        excluded: Collection[str] = _NOBODY,
        wants_encoders: bool = False,
        bounded: bool = False,
    ) -> Member | None:
        """Choose an engine of the prefill side, or None.

        Of `pairing` if given, never of the pairing `avoided`, none of `excluded`; with `wants_encoders` rather one
        whose pairing has an encoder; with `bounded` only one that has room. Engines that are out come last: a pairing
        is never left without engines by us.
        """
        members: Sequence[Member] = self.members.ready(self._answering, pairing)
        if pairing is None and self._answering is _DECODE:
            members = self._served(members)
        if avoided is not None:
            members = [member for member in members if member.pairing != avoided]
        encoder_pairings = self.members.pairings(_ENCODE) if wants_encoders else None
        shares = FULL_SHARE
        if not self.health.calm():
            members = self._well([member for member in members if member.name not in excluded])
            shares = self.health.shares()
        chosen = choose_prefill(
            key, members, self.load, excluded=excluded, encoder_pairings=encoder_pairings, shares=shares
        )
        if chosen is None or not bounded or self.has_room(chosen):
            return chosen
        # the least loaded of those with an encoder may be full, and one without not
        members = [member for member in members if self.has_room(member)]
        return choose_prefill(
            key, members, self.load, excluded=excluded, encoder_pairings=encoder_pairings, shares=shares
        )

    def prefiller(self, key: str, pairing: str, *, excluded: Collection[str] = _NOBODY) -> Member | None:
        """Choose an engine that prefills for one of `pairing` that answers, or None."""
        members = [m for m in self.members.ready(_PREFILL, pairing) if m.name not in excluded]
        if self.health.calm():
            return choose_prefill(key, members, self.load)
        return choose_prefill(key, self._well(members), self.load, shares=self.health.shares())

    def answering(self) -> Sequence[Member]:
        """All engines that requests may be answered by."""
        return self.members.ready(self._answering)

    def serves(self) -> bool:
        """Whether a text request would find an engine now."""
        pairings = self.members.pairings(self._answering)
        if self._answering is _DECODE:
            pairings &= self.members.pairings(_PREFILL)
        return bool(pairings)

    def encoders(self, pairing: str, *, excluded: str = "") -> Sequence[Member]:
        """The encoders of `pairing` to choose from, without the one named `excluded`."""
        members: Sequence[Member] = self.members.ready(_ENCODE, pairing)
        if excluded:
            members = [member for member in members if member.name != excluded]
        return members if self.health.calm() else self._well(members)

    def encoder(self, key: str, encoders: Sequence[Member]) -> Member:
        """Choose among `encoders`, which are not empty, for the item `key`."""
        return choose_encoder(key, encoders, self.load, shares=self.health.shares())

    def has_room(self, member: Member) -> bool:
        """Whether one more request may go to `member`."""
        return not self._bound or self.load[member.name] < self._bound

    def _served(self, members: Sequence[Member]) -> Sequence[Member]:
        """Those whose pairing has an engine that prefills, if there are any: the others can't answer every request."""
        prefilled = self.members.pairings(_PREFILL)
        if self.members.pairings(self._answering) <= prefilled:
            return members
        return [member for member in members if member.pairing in prefilled] or members

    def _well(self, members: Sequence[Member]) -> Sequence[Member]:
        # where all are out all are asked, as below Envoy's panic threshold: one alone would get what was meant for all,
        # and what put them out may have been requests
        return [member for member in members if self.health.admits(member.name)] or members
