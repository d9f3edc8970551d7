"""What `kubectl epd status` says: the state of one EPDDeployment, and of what is not well the cause and the cure.

Text from the object alone. Pure; asks no cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from epd.api.meanings import REASONS
from epd.api.names import ConditionType
from epd.api.types import (
    Condition,
    EncoderCacheStatus,
    EPDDeployment,
    LastCollectionStatus,
    PolicyStatus,
    Status,
)

_WELL_WHEN_FALSE: Final = frozenset(
    {ConditionType.RECONCILING, ConditionType.STALLED, ConditionType.UPDATE_AVAILABLE},
)
_PARTS: Final = tuple(
    str(kind).removesuffix("Ready") for kind in ConditionType if kind.endswith("Ready") and kind != ConditionType.READY
)


def describe(epd: EPDDeployment) -> str:
    """Return the state of an object as text, with a new-line at its end."""
    blocks = [_head(epd), _roles(epd.status), _cache(epd.status), _conditions(epd.status), *_not_well(epd.status)]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _head(epd: EPDDeployment) -> str:
    status, engine, cache = epd.status, epd.status.engine_version, epd.status.encoder_cache
    rows = [
        (f"{epd.metadata.namespace}/{epd.metadata.name}", f"{status.topology} {status.url}".strip()),
        ("model version", status.model_version),
        ("engine", f"vLLM {engine.version} ({engine.origin})" if engine else ""),
        ("encoder cache", " ".join(filter(None, (cache.claim, cache.phase, cache.capacity))) if cache else ""),
    ]
    lines = [_table([row for row in rows if row[1]] or rows[:1])]
    if status.observed_generation < epd.metadata.generation:
        lines.append(
            "The operator has not seen the latest change of the spec yet; what follows speaks of earlier ones."
        )
    return "\n".join(lines)


def _roles(status: Status) -> str:
    rows = [
        (role.name, f"{role.ready}/{role.desired}", str(role.updated), " ".join(role.model_versions))
        for role in status.roles
    ]
    return _table([("ROLE", "READY", "UPDATED", "MODEL VERSIONS"), *rows]) if rows else ""


def _cache(status: Status) -> str:
    """What lies on the claim, and the policy by which it goes; nothing while no collector has reported."""
    cache = status.encoder_cache
    if cache is None or cache.policy is None:
        return ""
    head = [
        ("cached", _sizes(cache)),
        ("policy", _policy(cache.policy)),
        ("last deleted", _last(cache.last_collection) if cache.last_collection else ""),
    ]
    rows = [
        (version.name, version.state, str(version.entries), version.used, " ".join(version.users))
        for version in cache.versions
    ]
    table = _table([("CACHE VERSION", "STATE", "ENTRIES", "USED", "USERS"), *rows]) if rows else ""
    return "\n\n".join(filter(None, (_table([row for row in head if row[1]]), table)))


def _sizes(cache: EncoderCacheStatus) -> str:
    more = f", and {cache.foreign} that are not the cache's" if cache.foreign not in ("", "0") else ""
    return f"{cache.used} in {cache.entries} entries{more}"


def _policy(policy: PolicyStatus) -> str:
    """In the fields' own names, so that people find what to change; with whose value counts where it is another's."""
    if not policy.enabled:
        return f"nothing is deleted (enabled: false{_origin(policy, 'enabled')})"
    values = {
        "versionGracePeriod": policy.version_grace_period,
        "entryTTL": policy.entry_ttl,
        "minIdle": policy.min_idle,
        "highWatermarkPercent": str(policy.high_watermark_percent),
        "lowWatermarkPercent": str(policy.low_watermark_percent),
        "dryRun": "true" if policy.dry_run else "",
    }
    return ", ".join(f"{field} {value}{_origin(policy, field)}" for field, value in values.items() if value)


def _origin(policy: PolicyStatus, field: str) -> str:
    return f" of {policy.origins[field]}" if field in policy.origins else ""


def _last(collection: LastCollectionStatus) -> str:
    return (
        f"{collection.freed} in {collection.removed_entries} entries and {collection.removed_versions} versions, "
        f"{collection.finished}"
    )


def _conditions(status: Status) -> str:
    rows = [(condition.type, str(condition.status), condition.reason) for condition in status.conditions]
    return _table([("CONDITION", "STATUS", "REASON"), *rows])


def _is_well(condition: Condition) -> bool:
    return condition.status == ("False" if condition.type in _WELL_WHEN_FALSE else "True")


def _not_well(status: Status) -> Iterator[str]:
    """The words of each condition that is not as it should be; those that repeat a part's words are left out."""
    said = set[str]()
    for condition in sorted(status.conditions, key=lambda condition: not condition.type.startswith(_PARTS)):
        if _is_well(condition) or condition.message in said:
            continue
        said.add(condition.message)
        words = [condition.message, _meaning(condition.reason)]
        yield "\n".join([f"{condition.type}: {condition.reason}", *(f"  {line}" for line in words if line)])


def _meaning(reason: str) -> str:
    """What a reason means and what to do; in Ready the reason of a part has the part before it."""
    meanings = {str(known): text for known, text in REASONS.items()}
    plain = next((reason.removeprefix(part) for part in _PARTS if reason.removeprefix(part) in meanings), reason)
    return meanings.get(reason, meanings.get(plain, ""))


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
