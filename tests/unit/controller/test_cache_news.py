from __future__ import annotations

from typing import Any

import pytest

from epd.api.types import CachedVersionStatus, Condition, EncoderCacheStatus, LastCollectionStatus, PolicyStatus, Status
from epd.controller.cache_news import news
from epd.controller.events import NORMAL, Note

POLICY = PolicyStatus(
    enabled=True, dry_run=False, version_grace_period="1h", high_watermark_percent=85, low_watermark_percent=70
)
CONDEMNED = Note(
    NORMAL, "VersionCondemned", "no one uses version v (2Gi) any more; it is deleted unless that changes within 1h"
)
REMOVED = Note(NORMAL, "VersionRemoved", "version v, which no one used, was deleted (2Gi)")
EVICTED = Note(
    NORMAL,
    "EntriesRemoved",
    "entries were deleted by age or to stay within the marks; status.encoderCache.lastCollection has figures",
)


def cache(*states: str, count: int | None = None, **changes: Any) -> Status:
    versions = [CachedVersionStatus(name="v", state=state, used="2Gi") for state in states]
    listed = len(versions) if count is None else count
    known = {"claim": "ec", "root_id": "r", "policy": POLICY, "version_count": listed, "versions": versions}
    return Status(encoder_cache=EncoderCacheStatus(**{**known, **changes}))


def health(status: str, reason: str) -> Status:
    condition = Condition(
        type="EncoderCacheHealthy", status=status, reason=reason, message="m", last_transition_time="t"
    )
    return Status(conditions=[condition], encoder_cache=EncoderCacheStatus(claim="ec", root_id="r"))


def collection(entries: int, finished: str) -> LastCollectionStatus:
    return LastCollectionStatus(finished=finished, removed_entries=entries, removed_versions=0)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (cache("Live"), cache("Live"), []),
        (cache("Live"), cache("Condemned"), [CONDEMNED]),
        (cache("Condemned"), cache("Condemned"), []),
        (cache("Condemned"), cache("Live"), []),
        (cache("Condemned"), cache("Trash"), [REMOVED]),
        (cache("Condemned"), cache(), [REMOVED]),
        (cache("Live"), cache(), [REMOVED]),
        (cache("Trash"), cache(), []),
        (cache(), cache("Condemned"), []),
        (cache("Live"), cache(count=40), []),
        (cache("Live", policy=None), cache(), []),
        (cache("Live"), cache(policy=None), []),
        (cache("Live"), cache(claim="other"), []),
        (cache("Live"), cache(root_id="other"), []),
        (Status(), cache("Condemned"), []),
        (cache(), cache(last_collection=collection(3, "1")), [EVICTED]),
        (cache(last_collection=collection(3, "1")), cache(last_collection=collection(3, "1")), []),
        (cache(), cache(last_collection=collection(0, "1")), []),
        (health("False", "NotWritable"), health("True", "Healthy"), [Note(NORMAL, "Healthy", "m")]),
        (health("False", "RootOwnedByAnotherClaim"), health("True", "Healthy"),
         [Note(NORMAL, "Healthy", "claim ec has taken over the root r")]),
        (health("Unknown", "Starting"), health("True", "Healthy"), []),
        (health("False", "NotWritable"), health("Unknown", "Starting"), []),
    ],
)  # fmt: skip
def test_news(before: Status, after: Status, expected: list[Note]) -> None:
    assert list(news(before, after)) == expected
