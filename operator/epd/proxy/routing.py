"""Which engine gets what: rendezvous hashing with bounded load for encoders, least in-flight for the prefill side.

Pure, but for the counters of `InFlight`. Members of different pairings are never used together: an encoder of one model
version writes entries that another version's prefill side never reads.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from epd.proxy.affinity import Sticky
from epd.proxy.pods import Member

LOAD_FACTOR = 1.25
"""No encoder gets more than this times its fair share. Mirrokni et al., "Consistent Hashing with Bounded Loads" (2016),
whose users run between 1.25 (tight) and 2."""

FULL_SHARE: Final[Mapping[str, float]] = MappingProxyType({})
"""Nobody has less than a full share."""
_UNPAIRED: Final = 1e12
"""More than any load: an engine without an encoder comes after all that have one."""


class InFlight:
    """Work in flight by member name: items for encoders, requests for the prefill side."""

    def __init__(self) -> None:
        self._count: dict[str, int] = {}
        self.on_end: Callable[[], object] | None = None
        """Called after each `end`, where somebody waits for it."""
        self._begun: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        return self._count.get(name, 0)

    def begin(self, name: str, amount: int = 1) -> None:
        """Count `amount` more at `name`."""
        self._count[name] = self._count.get(name, 0) + amount
        self._begun[name] = self._begun.get(name, 0) + amount

    def end(self, name: str, amount: int = 1) -> None:
        """Count `amount` less; names at zero are forgotten, since pods come and go."""
        left = self._count.get(name, 0) - amount
        if left > 0:
            self._count[name] = left
        else:
            self._count.pop(name, None)
        if self.on_end is not None:
            self.on_end()

    def withdraw(self, name: str) -> None:
        """Take back one that was begun to keep a place and begins anew at once: nobody who waits should hear of it."""
        self._take_back(name)
        on_end, self.on_end = self.on_end, None
        self.end(name)
        self.on_end = on_end

    def give_up(self, name: str) -> None:
        """Take back one that was begun to keep a place, of which nothing came."""
        self._take_back(name)
        self.end(name)

    def begun(self, names: Collection[str]) -> Mapping[str, int]:
        """What was begun in all by each of `names`, the members there are; others are forgotten."""
        self._begun = {name: self._begun.get(name, 0) for name in names}
        return self._begun

    def counts(self) -> Mapping[str, int]:
        """A copy of all counts that are not zero."""
        return dict(self._count)

    def view(self) -> Mapping[str, int]:
        """All counts that are not zero, as they are from now on."""
        return self._count

    def _take_back(self, name: str) -> None:
        # an engine that was forgotten meanwhile has nothing to take it from
        self._begun[name] = max(0, self._begun.get(name, 0) - 1)


def rank(key: str, name: str) -> int:
    """Weight of `name` for `key`; the highest wins (Thaler and Ravishankar, "A Name-Based Mapping Scheme", 1996)."""
    return int.from_bytes(hashlib.blake2b(f"{key}\0{name}".encode(), digest_size=8).digest(), "big")


def choose_encoder(
    key: str, encoders: Sequence[Member], load: InFlight, *, shares: Mapping[str, float] = FULL_SHARE
) -> Member:
    """Choose among `encoders`, which are not empty, for the item `key`; or among other engines for a Sticky one.

    Always the same one, unless it has more than its share of the load: the same encoder each time means a hit in its
    own cache instead of a second encoding. `shares` names the encoders that take less than a full share, by 0 to 1.
    """
    if len(encoders) == 1:
        return encoders[0]
    counts = load.view()
    loads = [counts.get(member.name, 0) for member in encoders]
    total = sum(loads) + 1
    if shares:
        # in proportion, so that what one may not take the others may
        whole = sum(shares.get(member.name, 1.0) for member in encoders)
        bound = math.ceil(LOAD_FACTOR * total / whole)
        within = [m for m, n in zip(encoders, loads, strict=True) if n < bound * shares.get(m.name, 1.0)]
    else:
        bound = math.ceil(LOAD_FACTOR * total / len(encoders))
        within = [m for m, n in zip(encoders, loads, strict=True) if n < bound]
    # never empty: the bounds are above the loads together
    return max(within, key=lambda m: (rank(key, m.name), m.name))


def choose_prefill(
    key: str,
    members: Sequence[Member],
    load: InFlight,
    *,
    excluded: Collection[str] = (),
    encoder_pairings: Collection[str] | None = None,
    shares: Mapping[str, float] = FULL_SHARE,
) -> Member | None:
    """Choose the prefill-side member with the least in flight, or None.

    `encoder_pairings`, where given, are the pairings that have an encoder in rotation: their members come first. Going
    by the load of pods rather than of pairings lets a half-finished rollout carry what its pods can carry. Equal load
    goes to the pairing with more pods, then by `key`, so that idle pods are used evenly. `shares` names the members
    that take less than a full share, by 0 to 1 (Envoy's least-request balancer weights by them in the same way). A
    Sticky `key` leads to the same member while that has no more than its share, whatever the others have.
    """
    if type(key) is Sticky:
        return _choose_sticky(key, [m for m in members if m.name not in excluded], load, encoder_pairings, shares)
    counts = load.view()
    least = math.inf
    equal: list[Member] = []
    for member in members:
        name = member.name
        if name in excluded:
            continue
        cost = float(counts.get(name, 0))
        if shares:
            cost = (cost + 1) / shares.get(name, 1.0)
        if encoder_pairings is not None and member.pairing not in encoder_pairings:
            cost += _UNPAIRED
        if cost < least:
            least, equal = cost, [member]
        elif cost == least:
            equal.append(member)
    if len(equal) < 2:
        return equal[0] if equal else None
    return _by_key(key, equal, members)


def _choose_sticky(
    key: Sticky,
    members: Sequence[Member],
    load: InFlight,
    encoder_pairings: Collection[str] | None,
    shares: Mapping[str, float],
) -> Member | None:
    if encoder_pairings is not None:
        members = [member for member in members if member.pairing in encoder_pairings] or members
    return choose_encoder(key, members, load, shares=shares) if members else None


def _by_key(key: str, equal: Sequence[Member], members: Sequence[Member]) -> Member:
    pairing = equal[0].pairing
    if any(member.pairing != pairing for member in equal):
        sizes = Counter(member.pairing for member in members)
        largest = max(sizes[member.pairing] for member in equal)
        equal = [member for member in equal if sizes[member.pairing] == largest]
    return equal[zlib.crc32(key.encode()) % len(equal)]
