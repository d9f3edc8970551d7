"""Which local copies and pins are held, by whom, and until when. Pure bookkeeping for the scheduler's thread.

Holders are requests (their ids) and steps (their numbers). A copy goes when its last holder lets go: a step when it is
accounted, a request when it no longer needs the item. So an abort cannot take a copy from a load in flight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from .local import Copy
from .store import Pin

Key = tuple[str, int]
"""Identifier and rows: a client may reuse an identifier for media of another size."""
Holder = str | int

QUEUED: Final = -1
"""Holds for loads that the next step will carry; steps are counted from 1."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a worker reads: `rows` x `width` values of `dtype` at `offset` of `path`; a checksum if it must verify."""

    identifier: str
    path: str
    offset: int
    rows: int
    width: int
    dtype: str
    checksum: str | None


@dataclass(slots=True, eq=False)
class Held:
    """A copy or pin, and who needs it."""

    load: Load
    source: Copy | Pin
    holders: set[Holder] = field(default_factory=set)


class Holdings:
    """All that is held. `give_back` gets what nobody holds any more; it must not block."""

    def __init__(self, give_back: Callable[[Copy | Pin], object]) -> None:
        self._give_back = give_back
        self._held: dict[Key, Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: Key) -> bool:
        return key in self._held

    def load(self, key: Key) -> Load:
        """Return what a worker has to read. Raises KeyError for what is not held."""
        return self._held[key].load

    def add(self, key: Key, load: Load, source: Copy | Pin, holders: set[Holder]) -> None:
        """Take over a copy or pin. Without holders, or if one is held already, it goes back at once."""
        if key in self._held:
            self._held[key].holders |= holders
            self._give_back(source)
        elif holders:
            self._held[key] = Held(load, source, set(holders))
        else:
            self._give_back(source)

    def hold(self, key: Key, holder: Holder) -> bool:
        """Hold what is held already; False if it is not."""
        held = self._held.get(key)
        if held is None:
            return False
        held.holders.add(holder)
        return True

    def drop(self, key: Key, holder: Holder) -> None:
        """Let go."""
        held = self._held.get(key)
        if held is None:
            return
        held.holders.discard(holder)
        if not held.holders:
            del self._held[key]
            self._give_back(held.source)

    def clear(self) -> None:
        """Give everything back."""
        held, self._held = self._held, {}
        for one in held.values():
            self._give_back(one.source)
