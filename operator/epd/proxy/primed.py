"""What became of a request's media before the prefill side is asked: who encoded them, and what they said of each.

Pure. Never decides what follows from a failure (`exchange.py` does).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Final

from epd.proxy.connectors import announce
from epd.proxy.prefill import Arrival
from epd.proxy.primers import Encoded, EncodeFailure
from epd.proxy.rewrite import Reported

SHOWN_IDENTIFIERS: Final = 32
"""Identifiers in `x-epd-items`: with 65 characters each they take half of the 4 KiB that NGINX by default has for all
headers; a request may have hundreds of items."""
SHOWN_BYTES: Final = 4096
"""Length of `x-epd-items`, however long what encoders report is: half of the 8 KiB that aiohttp as a client takes."""
_PRINTABLE: Final = re.compile(r"[ -~]+")
"""What a header may say; what an encoder reports may be any text, and half of a surrogate pair is none at all."""


@dataclass(frozen=True, slots=True)
class Primed:
    """What became of a request's media."""

    encoders: tuple[str, ...] = ()
    reported: Mapping[str, Reported] = field(default_factory=dict)
    announced: Mapping[str, Any] = field(default_factory=dict)
    failure: EncodeFailure | None = None

    @staticmethod
    def of(results: Sequence[Encoded | EncodeFailure]) -> Primed:
        """Put the results of all primers together."""
        encoded = [result for result in results if isinstance(result, Encoded)]
        failures = [result for result in results if isinstance(result, EncodeFailure)]
        # a refusal by an encoder says more than a broken connection
        failures.sort(key=lambda failure: failure.status is None)
        return Primed(
            encoders=tuple(dict.fromkeys(result.encoder for result in encoded)),
            reported={key: item for result in encoded for key, item in result.reported.items()},
            announced={key: entry for result in encoded for key, entry in result.announced.items()},
            failure=failures[0] if failures else None,
        )

    def told(self, arrival: Arrival) -> Arrival:
        """The request with what encoders announced to the engines of their own pairing, which no other may read."""
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
        named = dict.fromkeys(item.identifier for item in self.reported.values())
        shown = [identifier for identifier in named if _PRINTABLE.fullmatch(identifier)][:SHOWN_IDENTIFIERS]
        # each but the last has a comma behind it
        ends = accumulate(len(identifier) + 1 for identifier in shown)
        return [identifier for identifier, end in zip(shown, ends, strict=True) if end - 1 <= SHOWN_BYTES]


NOTHING: Final = Primed()
"""There were no media, or nobody was to encode them."""
