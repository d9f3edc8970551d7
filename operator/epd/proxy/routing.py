"""Which engine gets what: rendezvous hashing with bounded load for encoders, least in-flight for the prefill side.

Pure, but for the counters of `InFlight`. Members of different pairings are never used together: an encoder of one model
version writes entries that another version's prefill side never reads.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from epd.proxy.pods import Member

LOAD_FACTOR = 1.25
"""No encoder gets more than this times its fair share. Mirrokni et al., "Consistent Hashing with Bounded Loads" (2016),
whose users run between 1.25 (tight) and 2."""


class InFlight:
    """Work in flight by member name: items for encoders, requests for the prefill side."""

    def __init__(self) -> None:
        self._count: Counter[str] = Counter()

    def __getitem__(self, name: str) -> int:
        return self._count[name]

    def begin(self, name: str, amount: int = 1) -> None:
        """Count `amount` more at `name`."""
        self._count[name] += amount

    def end(self, name: str, amount: int = 1) -> None:
        """Count `amount` less; names at zero are forgotten, since pods come and go."""
        self._count[name] -= amount
        if self._count[name] <= 0:
            del self._count[name]

    def counts(self) -> Mapping[str, int]:
        """A copy of all counts that are not zero."""
        return dict(self._count)


def rank(key: str, name: str) -> int:
    """Weight of `name` for `key`; the highest wins (Thaler and Ravishankar, "A Name-Based Mapping Scheme", 1996)."""
    return int.from_bytes(hashlib.blake2b(f"{key}\0{name}".encode(), digest_size=8).digest(), "big")


def choose_encoder(key: str, encoders: Sequence[Member], load: InFlight) -> Member:
    """Choose among `encoders`, which are not empty, for the item `key`.

    Always the same one, unless it has more than its share of the load: the same encoder each time means a hit in its
    own cache instead of a second encoding.
    """
    total = sum(load[member.name] for member in encoders)
    bound = math.ceil(LOAD_FACTOR * (total + 1) / len(encoders))
    # never empty: the bound is above the mean
    return max((m for m in encoders if load[m.name] < bound), key=lambda m: (rank(key, m.name), m.name))


def choose_prefill(
    key: str,
    members: Sequence[Member],
    load: InFlight,
    *,
    excluded: Collection[str] = (),
    encoder_pairings: Collection[str] | None = None,
) -> Member | None:
    """Choose the prefill-side member with the least in flight, or None.

    `encoder_pairings`, where given, are the pairings that have an encoder in rotation: their members come first. Going
    by the load of pods rather than of pairings lets a half-finished rollout carry what its pods can carry. Equal load
    goes to the pairing with more pods, then by `key`, so that idle pods are used evenly.
    """
    candidates = [member for member in members if member.name not in excluded]
    sizes = Counter(member.pairing for member in candidates)

    def order(member: Member) -> tuple[bool, int, int, int]:
        unpaired = encoder_pairings is not None and member.pairing not in encoder_pairings
        return unpaired, load[member.name], -sizes[member.pairing], rank(key, member.name)

    return min(candidates, key=order, default=None)
