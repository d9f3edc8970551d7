"""Remembers what encoders reported of items, for as long as the store is known to hold these.

Pure, with the clock given. A hint may be wrong, when a store was lost: who uses one must be able to do without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from epd.proxy.parsed import ParsedRequest
from epd.proxy.rewrite import Reported

HINTS_LIMIT: Final = 16_384
"""About 1 KB each with its key and metadata, so 16 MB at most: a quarter of what one body may take."""


@dataclass(slots=True, init=False)
class Hint:
    """An item that `encoder` encoded, and what it reported; good until `until` of the clock."""

    encoder: str
    reported: Reported
    until: float

    def __init__(self, encoder: str, reported: Reported, until: float) -> None:
        self.encoder = encoder
        self.reported = reported
        self.until = until


class Hints:
    """Hints by the key of an item. They are good for `seconds`; 0 for none at all."""

    def __init__(self, *, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._hints: dict[str, Hint] = {}
        """The oldest first."""

    def __len__(self) -> int:
        return len(self._hints)

    def find(self, key: str) -> Hint | None:
        """What is known of an item."""
        hint = self._hints.get(key)
        if hint is not None and hint.until <= self._clock():
            del self._hints[key]
            return None
        return hint

    def note(self, key: str, *, encoder: str, reported: Reported) -> None:
        """An item was just published. The oldest hint makes room for it."""
        self._hints.pop(key, None)
        if len(self._hints) >= HINTS_LIMIT:
            del self._hints[next(iter(self._hints))]
        self._hints[key] = Hint(encoder, reported, self._clock() + self.seconds)

    def drop(self, key: str) -> None:
        """An item was not where it should be."""
        self._hints.pop(key, None)


def hint_keys(pairing: str, request: ParsedRequest) -> dict[str, str]:
    """Keys of the items of `request`, by their own keys: equal if encoders of `pairing` make the same of them.

    Without those of URLs, whose content only an engine sees and may change.
    """
    return {item: f"{pairing}/{key}" for item, key in request.result_keys().items()}
