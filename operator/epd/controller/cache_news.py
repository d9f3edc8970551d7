"""What is worth an Event in the encoder cache: from one status to the next.

Pure. Both are statuses of the object, not reports: so nothing is told twice after a restart of the operator, and
nothing is lost that happened meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator

from epd.api.collection import VersionState
from epd.api.names import ConditionType, Reason
from epd.api.types import CachedVersionStatus, Condition, EncoderCacheStatus, Status
from epd.controller.events import NORMAL, Note


def news(before: Status, after: Status) -> tuple[Note, ...]:
    """What happened on the claim; nothing while either side is not known, or speaks of another claim or root."""
    return (*_recovered(before, after), *_happened(before.encoder_cache, after.encoder_cache))


def _recovered(before: Status, after: Status) -> Iterator[Note]:
    old, new = _health(before), _health(after)
    if old is None or new is None or old.status != "False" or new.status != "True":
        return
    if old.reason == Reason.ROOT_OWNED_BY_ANOTHER_CLAIM and after.encoder_cache is not None:
        cache = after.encoder_cache
        yield Note(NORMAL, new.reason, f"claim {cache.claim} has taken over the root {cache.root_id}")
    else:
        yield Note(NORMAL, new.reason, new.message)


def _happened(before: EncoderCacheStatus | None, after: EncoderCacheStatus | None) -> Iterator[Note]:
    if before is None or after is None or before.policy is None or after.policy is None:
        return
    if (before.claim, before.root_id) != (after.claim, after.root_id):
        return
    now = {version.name: version for version in after.versions}
    all_listed = after.version_count == len(after.versions)
    for version in before.versions:
        if version.name in now or all_listed:
            yield from _of(version, now.get(version.name), after)
    last = after.last_collection
    if last is not None and last != before.last_collection and last.removed_entries:
        # Without figures: under load this happens each minute, and is to be one Event that counts.
        yield Note(
            NORMAL,
            Reason.ENTRIES_REMOVED,
            "entries were deleted by age or to stay within the marks; status.encoderCache.lastCollection has figures",
        )


def _of(old: CachedVersionStatus, new: CachedVersionStatus | None, cache: EncoderCacheStatus) -> Iterator[Note]:
    state = new.state if new is not None else None
    if old.state == VersionState.LIVE and state == VersionState.CONDEMNED and cache.policy is not None:
        grace = cache.policy.version_grace_period
        yield Note(
            NORMAL,
            Reason.VERSION_CONDEMNED,
            f"no one uses version {old.name} ({old.used}) any more; it is deleted unless that changes within {grace}",
        )
    if old.state != VersionState.TRASH and state in (None, VersionState.TRASH):
        yield Note(NORMAL, Reason.VERSION_REMOVED, f"version {old.name}, which no one used, was deleted ({old.used})")


def _health(status: Status) -> Condition | None:
    return next((c for c in status.conditions if c.type == ConditionType.ENCODER_CACHE_HEALTHY), None)
