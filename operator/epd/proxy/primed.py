"""What became of a request's media before the prefill side is asked: who encoded them, and what they said of each.

Pure. Never decides what follows from a failure (`exchange.py` does).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from epd.proxy.arrival import Arrival
from epd.proxy.connectors import announce
from epd.proxy.primers import Encoded, EncodeFailure
from epd.proxy.rewrite import Reported

SHOWN_IDENTIFIERS: Final = 32
"""Identifiers in `x-epd-items`: with 65 characters each they take half of the 4 KiB that NGINX by default has for all
headers; a request may have hundreds of items."""
SHOWN_BYTES: Final = 4096
"""Length of `x-epd-items`, however long what encoders report is: half of the 8 KiB that aiohttp as a client takes."""
_PRINTABLE: Final = re.compile(r"[ -~]+")
"""What a header may say; what an encoder reports may be any text, and half of a surrogate pair is none at all."""
_NOTHING_SAID: Final[Mapping[str, Any]] = {}
_NO_REPORTS: Final[dict[str, Reported]] = {}
"""Never changed."""


@dataclass(slots=True, init=False)
class Primed:
    """What became of a request's media. Never changed."""

    encoders: tuple[str, ...]
    reported: dict[str, Reported]
    announced: Mapping[str, Any]
    failure: EncodeFailure | None
    pushed: tuple[Mapping[str, str], ...]

    def __init__(
        self,
        encoders: tuple[str, ...] = (),
        reported: dict[str, Reported] = _NO_REPORTS,
        announced: Mapping[str, Any] = _NOTHING_SAID,
        failure: EncodeFailure | None = None,
        pushed: tuple[Mapping[str, str], ...] = (),
    ) -> None:
        self.encoders = encoders
        self.reported = reported
        self.announced = announced
        self.failure = failure
        self.pushed = pushed

    @staticmethod
    def of(results: Sequence[Encoded | EncodeFailure]) -> Primed:
        """Put the results of all primers together."""
        encoders: dict[str, None] = {}
        reported: dict[str, Reported] = {}
        announced: dict[str, Any] = {}
        failure: EncodeFailure | None = None
        pushed: list[Mapping[str, str]] = []
        for result in results:
            if isinstance(result, Encoded):
                encoders[result.encoder] = None
                reported.update(result.reported)
                announced.update(result.announced)
                pushed += result.pushed
            elif failure is None or (failure.status is None and result.status is not None):
                # a refusal by an encoder says more than a broken connection
                failure = result
        return Primed(tuple(encoders), reported, announced, failure, tuple(pushed))

    def told(self, arrival: Arrival) -> Arrival:
        """The request with what encoders announced to the engines of their own pairing, which no other may read.

        Or with what they pushed to one of them.
        """
        if self.pushed:
            return replace(arrival, request=announce(arrival.request, {"ec_items": self.pushed}))
        if not self.announced:
            return arrival
        return replace(arrival, request=announce(arrival.request, self.announced))

    def headers(self) -> dict[str, str]:
        """What the client is told of it."""
        headers = {}
        if self.encoders:
            headers["x-epd-encoders"] = ",".join(self.encoders)
        if shown := self._shown():
            headers["x-epd-items"] = ",".join(shown)
        return headers

    def _shown(self) -> list[str]:
        shown: dict[str, None] = {}
        # each but the first has a comma before it
        room = SHOWN_BYTES + 1
        for key, item in self.reported.items():
            identifier = item.identifier
            # nearly all are the key that we gave the item, which has nothing but hex digits
            if identifier in shown or (identifier != key and _PRINTABLE.fullmatch(identifier) is None):
                continue
            room -= len(identifier) + 1
            if room < 0 or len(shown) == SHOWN_IDENTIFIERS:
                break
            shown[identifier] = None
        return list(shown)


NOTHING: Final = Primed()
"""There were no media, or nobody was to encode them."""
