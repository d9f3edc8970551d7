"""Counts the media that wait for their embeddings, and bounds the requests whose media the prefill side encodes itself.

Never decides whether a request may fall back on that (`exchange.py` does).
"""

from __future__ import annotations

from epd.proxy.errors import FallbackLimitError
from epd.proxy.metrics import Metrics


class Demand:
    """What all requests with media hold. No more than `limit` of them fall back at a time."""

    def __init__(self, *, metrics: Metrics, limit: int) -> None:
        self.metrics = metrics
        self.limit = limit
        self.fallbacks = 0

    def of(self, items: int) -> Held:
        """A request's `items` wait for encoders from now on."""
        self.metrics.encode_wanted(items)
        return Held(self, items)


class Held:
    """What one request holds, until `let_go`."""

    __slots__ = ("_demand", "_falls_back", "_waiting")

    def __init__(self, demand: Demand, items: int) -> None:
        self._demand = demand
        self._waiting = items
        self._falls_back = False

    def settle(self) -> None:
        """The items wait no longer."""
        self._demand.metrics.encode_settled(self._waiting)
        self._waiting = 0

    def fall_back(self, reason: str) -> str:
        """Take a place among those that fall back, for `reason`, which is returned. Raises FallbackLimitError."""
        demand = self._demand
        if demand.fallbacks >= demand.limit:
            raise FallbackLimitError(
                f"no encoder could encode the media ({reason}), and spec.proxy.limits.maxFallbackEncodes requests "
                "already have theirs encoded by the prefill side"
            )
        demand.fallbacks += 1
        self._falls_back = True
        demand.metrics.fallback(reason)
        return reason

    def let_go(self) -> None:
        """Give everything back."""
        self.settle()
        if self._falls_back:
            self._falls_back = False
            self._demand.fallbacks -= 1
