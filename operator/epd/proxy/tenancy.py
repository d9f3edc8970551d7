"""Who sends a request, where API keys are in force: its tenant, and how many requests of it are in flight.

Knows nothing of engines, and nothing of where keys come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from epd.proxy.api_keys import ApiKeys
from epd.proxy.errors import TenantOverloadedError, UnauthorizedError
from epd.proxy.isolation import Isolation
from epd.proxy.media import MediaPolicy
from epd.proxy.tenant_series import TenantSeries
from epd.proxy.tenants import presented

OVERLOADED: Final = "overloaded"
"""How a request ended that was answered 429, by the tenant's bound or another: what a tenant has to be told apart."""


class Tenancy:
    """Tenants at work. `most` bounds the requests of one that are in flight; 0 for any number."""

    def __init__(self, *, keys: ApiKeys, isolation: Isolation, most: int, series: TenantSeries) -> None:
        self._keys = keys
        self._isolation = isolation
        self._most = most
        self._series = series
        self._in_flight = series.in_flight

    def identify(self, headers: Mapping[str, str]) -> str:
        """The tenant that sent a request with these headers. Raises UnauthorizedError."""
        key = presented(headers)
        if key is None:
            raise UnauthorizedError("no API key was given: send it as Authorization: Bearer <key>, or as x-api-key")
        tenant = self._keys.table.owner(key)
        if tenant is None:
            raise UnauthorizedError("the API key is not valid")
        return tenant

    def policy(self, tenant: str) -> MediaPolicy:
        """How media of a tenant's requests are named."""
        return self._isolation.policy(tenant)

    def enter(self, tenant: str) -> None:
        """A request is in flight. Raises TenantOverloadedError, and it is not then."""
        already = self._in_flight.get(tenant, 0)
        if self._most and already >= self._most:
            raise TenantOverloadedError(
                f"{already} requests with this tenant's API keys are in flight (spec.proxy.limits.maxPerTenant)"
            )
        self._in_flight[tenant] = already + 1

    def leave(self, tenant: str) -> None:
        """One is over."""
        left = self._in_flight[tenant] - 1
        if left:
            self._in_flight[tenant] = left
        else:
            del self._in_flight[tenant]

    def ended(self, tenant: str, outcome: str, status: int | None) -> None:
        """A tenant's request is over, refused ones too."""
        self._series.ended(tenant, OVERLOADED if status == TenantOverloadedError.status else outcome)
