"""Keeps tenants' caches apart: what identifiers of items and engines' prefix caches are salted with for each.

Pure. The salts follow from the deployment's salt and the tenant's name, so that all replicas have the same; they are no
secrets, since no client has a say in what they are mixed into.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Final

from epd.proxy.errors import InvalidRequestError
from epd.proxy.identifiers import digest
from epd.proxy.lifting import Payloads
from epd.proxy.media import MediaPolicy

GIVEN_MOST: Final = 1024
"""Characters of a client's `cache_salt` (vLLM entrypoints/openai/chat_completion/protocol.py)."""
_REMEMBERED: Final = 4096
"""Tenants whose salts are at hand, at about 1 KB each."""


class TenantIsolation(StrEnum):
    """`spec.proxy.auth.tenantIsolation`: whether tenants use each other's embeddings and prefix caches."""

    SHARED = "Shared"
    SALTED = "Salted"


class Isolation:
    """Policies by tenant; `shared` is the deployment's own."""

    def __init__(self, isolation: TenantIsolation, shared: MediaPolicy) -> None:
        self._salted = isolation is TenantIsolation.SALTED
        self._shared = shared
        self._policies: dict[str, MediaPolicy] = {}

    def policy(self, tenant: str) -> MediaPolicy:
        """How media of a tenant's requests are named."""
        if not self._salted:
            return self._shared
        policy = self._policies.get(tenant)
        if policy is None:
            if len(self._policies) >= _REMEMBERED:
                self._policies.clear()
            policy = self._policies[tenant] = _salted(self._shared, tenant)
        return policy


def combined_salt(policy: MediaPolicy, given: object, payloads: Payloads) -> str:
    """What engines get as `cache_salt` where a client's is `given`: apart for each tenant, and for each of its salts.

    64 hex digits, since engines of vLLM 0.32 take 128 characters at most. Raises InvalidRequestError for what engines
    would refuse, which they don't see any more.
    """
    if given is None:
        return policy.cache_salt
    salt = payloads.expand(given) if isinstance(given, str) else ""
    if not 1 <= len(salt) <= GIVEN_MOST:
        raise InvalidRequestError(f"cache_salt must be a string of 1 to {GIVEN_MOST} characters", param="cache_salt")
    return digest(policy.hash_algorithm, "epd.client-cache.v1", policy.cache_salt, salt)


def _salted(shared: MediaPolicy, tenant: str) -> MediaPolicy:
    algorithm, salt = shared.hash_algorithm, shared.salt
    return replace(
        shared,
        salt=digest(algorithm, "epd.tenant.v1", salt, tenant),
        cache_salt=digest(algorithm, "epd.tenant-cache.v1", salt, tenant),
    )
