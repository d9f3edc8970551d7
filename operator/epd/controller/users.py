"""Who keeps an encoder cache on a claim, and which collectors the claim needs for it. Pure.

Users of one directory of a claim share a collector; users of two directories do not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import ValidationError

from epd.api import names
from epd.api.types import EPDDeployment
from epd.controller import keys
from epd.controller.cache import collected
from epd.controller.keys import ClaimKey
from epd.controller.kinds import Manifest
from epd.topology.storage import encoder_cache_claim


@dataclass(frozen=True, kw_only=True)
class Root:
    """One directory of a claim and the EPDDeployments that keep their cache there, by name; never none."""

    sub_path: str
    users: tuple[EPDDeployment, ...]

    @property
    def collected(self) -> bool:
        """Whether a collector is wanted: one user that disables collection stops it, all of them do without one."""
        return any(collected(user) for user in self.users)


@dataclass(frozen=True, kw_only=True)
class Users:
    """All users of a claim."""

    roots: tuple[Root, ...] = ()
    unreadable: bool = False
    """An EPDDeployment names the claim and cannot be parsed: nothing is pruned that it may need."""


def uses_claim(epd: EPDDeployment) -> bool:
    """Whether the object counts: one that is being deleted only while its entries are still being removed."""
    return epd.metadata.deletion_timestamp is None or names.FINALIZER_ENCODER_CACHE in epd.metadata.finalizers


def without_template(epd: EPDDeployment) -> EPDDeployment:
    """The object as if it gave no podTemplate for its collector, which others share: one that is refused counts not."""
    cache = epd.spec.encoder_cache
    if cache is None or not cache.garbage_collection.pod_template:
        return epd
    collection = cache.garbage_collection.model_copy(update={"pod_template": {}})
    cache = cache.model_copy(update={"garbage_collection": collection})
    return epd.model_copy(update={"spec": epd.spec.model_copy(update={"encoder_cache": cache})})


def users_of(key: ClaimKey, parents: Iterable[Manifest]) -> Users:
    """Sort the EPDDeployments of the claim's namespace."""
    found: dict[str, list[EPDDeployment]] = {}
    unreadable = False
    for parent in sorted(parents, key=lambda p: str(p["metadata"]["name"])):
        if key not in keys.claims_of(parent):
            continue
        try:
            epd = EPDDeployment.model_validate(parent)
        except ValidationError:
            unreadable = True
            continue
        claim = encoder_cache_claim(epd)
        if claim is not None and claim.claim_name == key.claim and uses_claim(epd):
            found.setdefault(claim.sub_path, []).append(epd)
    roots = tuple(Root(sub_path=path, users=tuple(users)) for path, users in sorted(found.items()))
    return Users(roots=roots, unreadable=unreadable)
