"""The policy in force on a root: of all its users the most careful, value by value. Pure; asks nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from epd.api.encoder_cache import GarbageCollection
from epd.api.quantity import duration_seconds, quantity_value
from epd.api.types import ConnectorKind
from epd.collector.inputs import Policy
from epd.collector.seen import Root, SeenEPD

NOTHING: Final = Policy(
    enabled=False,
    dry_run=False,
    version_grace=3600,
    entry_ttl=None,
    min_idle=1800,
    high_percent=85,
    low_percent=70,
)
"""Where nobody says anything: nothing is deleted. The other values are the API's defaults, for people who read them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """A policy and where it comes from.

    Attributes:
        origins: Field of `garbageCollection` to the user whose value counts; of equal ones the first by name.
        users: Those who were asked, by name.
        unreadable: Users whose policy cannot be read: nothing is deleted as long as there are any.
    """

    policy: Policy = NOTHING
    origins: Mapping[str, str] = field(default_factory=dict)
    users: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()


Value = bool | float | int | None
_Users = Sequence[tuple[str, GarbageCollection]]


def policy_in_force(epds: Iterable[SeenEPD], root: Root, *, requested_bytes: int | None) -> InForce:
    """Return the most careful policy of all who keep their cache on `root`.

    Args:
        epds: Of the namespace. One that is being deleted counts only while it waits for its entries to be removed;
            one with a connector of its own does not: its files are no entries.
        root: Whose users count.
        requested_bytes: What the claim asks for: the default of `maxSize`. None: there is none.
    """
    asked = sorted(
        (epd for epd in epds if epd.uses(root) and (epd.finalizing or not epd.deleting) and not _custom(epd)),
        key=lambda epd: epd.name,
    )
    users = [(epd.name, epd.cache.garbage_collection) for epd in asked if epd.cache]
    unreadable = tuple(epd.name for epd in asked if not epd.cache)
    if not users:
        return InForce(users=unreadable, unreadable=unreadable)
    winners = {name: _winner(users, value, key) for name, (value, key) in _FIELDS.items()}
    high, low = int(winners["highWatermarkPercent"][1] or 0), int(winners["lowWatermarkPercent"][1] or 0)
    ttl = winners["entryTTL"][1]
    policy = Policy(
        enabled=bool(winners["enabled"][1]) and not unreadable,
        dry_run=bool(winners["dryRun"][1]),
        version_grace=float(winners["versionGracePeriod"][1] or 0),
        entry_ttl=None if ttl is None else float(ttl),
        min_idle=float(winners["minIdle"][1] or 0),
        high_percent=high,
        low_percent=min(low, high - 1),
        max_sizes=_max_sizes(asked, requested_bytes),
        evict_example=_evict_example(asked),
    )
    origins = {name: user for name, (user, _) in winners.items()}
    if unreadable:
        origins["enabled"] = unreadable[0]
    return InForce(policy=policy, origins=origins, users=tuple(epd.name for epd in asked), unreadable=unreadable)


def _winner(
    users: _Users, value: Callable[[GarbageCollection], Value], key: Callable[[Value], float]
) -> tuple[str, Value]:
    """The user with the greatest `key`, the first of equals, and its value."""
    name, given = max(users, key=lambda user: key(value(user[1])))
    return name, value(given)


def _number(value: Value) -> float:
    return float(value or 0)


_FIELDS: Final[Mapping[str, tuple[Callable[[GarbageCollection], Value], Callable[[Value], float]]]] = {
    "enabled": (lambda given: given.enabled, lambda value: -_number(value)),
    "dryRun": (lambda given: given.dry_run, _number),
    "versionGracePeriod": (lambda given: duration_seconds(given.version_grace_period), _number),
    "entryTTL": (
        lambda given: None if given.entry_ttl is None else duration_seconds(given.entry_ttl),
        lambda value: float("inf") if value is None else float(value),
    ),
    "minIdle": (lambda given: duration_seconds(given.min_idle), _number),
    "highWatermarkPercent": (lambda given: given.high_watermark_percent, _number),
    "lowWatermarkPercent": (lambda given: given.low_watermark_percent, _number),
}
"""Field to how it is read and how careful a value is: of all users the greatest counts."""


def _custom(epd: SeenEPD) -> bool:
    return epd.cache is not None and epd.cache.connector is ConnectorKind.CUSTOM


def _evict_example(asked: Sequence[SeenEPD]) -> bool:
    """Whether all who use the Example connector allow it; where none does, nobody has allowed it."""
    example = [epd.cache for epd in asked if epd.cache and epd.cache.connector is ConnectorKind.EXAMPLE]
    return bool(example) and all(cache.garbage_collection.evict_live_entries for cache in example)


def _max_sizes(asked: Sequence[SeenEPD], requested_bytes: int | None) -> tuple[tuple[frozenset[str], int], ...]:
    """Versions of each user and the most they may take together.

    A version of several users counts for the one that allows most, so that none of them is held to less by another. A
    user whose limit is not known has none, and so have its versions.
    """
    rooms: dict[str, tuple[float, str]] = {}
    limits: dict[str, float] = {}
    for epd in asked:
        limits[epd.name] = _limit(epd, requested_bytes)
        for version in epd.versions:
            # `asked` is by name: the first of equals stays
            if version not in rooms or limits[epd.name] > rooms[version][0]:
                rooms[version] = limits[epd.name], epd.name
    groups = ((frozenset(v for v, (_, name) in rooms.items() if name == user), limit) for user, limit in limits.items())
    return tuple((versions, int(limit)) for versions, limit in groups if versions and limit != float("inf"))


def _limit(epd: SeenEPD, requested_bytes: int | None) -> float:
    given = epd.cache.garbage_collection.max_size if epd.cache else None
    if given is None:
        return float("inf") if requested_bytes is None or epd.cache is None else requested_bytes
    return float(quantity_value(given))
