from __future__ import annotations

from typing import Any

from epd.api.collection import CollectorReport
from epd.api.encoder_cache_status import MAX_USERS, MAX_VERSIONS, EncoderCacheStatus, encoder_cache_status

GIB = 2**30
REPORT: dict[str, Any] = {
    "claim": "ec",
    "rootId": "0-1",
    "owned": True,
    "passes": 3,
    "usedBytes": 3 * GIB,
    "entries": 12,
    "foreignBytes": 512,
    "freedBytes": 2 * GIB,
    "versions": [
        {"name": "v1-b", "state": "Trash", "usedBytes": GIB},
        {"name": "v1-a", "state": "Condemned", "usedBytes": 1, "since": "2026-11-29T12:00:00Z"},
        {"name": "v1-b", "state": "Live", "entries": 7, "usedBytes": 2 * GIB, "users": ["two", "one"]},
    ],
    "policy": {
        "versionGraceSeconds": 3600,
        "entryTtlSeconds": 259200,
        "minIdleSeconds": 1800,
        "highWatermarkPercent": 85,
        "lowWatermarkPercent": 70,
        "origins": {"minIdle": "one"},
    },
    "lastCollection": {"finished": "2026-11-29T13:00:00Z", "removedEntries": 5, "freedBytes": GIB},
    "livenessValid": True,
}


def status(changes: dict[str, Any] | None = None) -> EncoderCacheStatus:
    report = CollectorReport.model_validate(REPORT | (changes or {}))
    return encoder_cache_status("ec", phase="Bound", capacity="100Gi", report=report)


def test_all_of_it() -> None:
    assert status().model_dump(by_alias=True, exclude_defaults=True) == {
        "claim": "ec",
        "phase": "Bound",
        "capacity": "100Gi",
        "used": "3Gi",
        "usedBytes": 3 * GIB,
        "entries": 12,
        "foreign": "512",
        "freed": "2Gi",
        "rootID": "0-1",
        "versionCount": 2,
        "versions": [
            {"name": "v1-b", "state": "Live", "entries": 7, "used": "2Gi", "users": ["one", "two"]},
            {"name": "v1-a", "state": "Condemned", "used": "1", "since": "2026-11-29T12:00:00Z"},
        ],
        "policy": {
            "versionGracePeriod": "1h",
            "entryTTL": "72h",
            "minIdle": "30m",
            "enabled": True,
            "dryRun": False,
            "highWatermarkPercent": 85,
            "lowWatermarkPercent": 70,
            "origins": {"minIdle": "one"},
        },
        "lastCollection": {
            "finished": "2026-11-29T13:00:00Z",
            "removedEntries": 5,
            "removedVersions": 0,
            "freed": "1Gi",
        },
    }


def test_nothing_is_claimed_before_the_first_pass() -> None:
    plain = EncoderCacheStatus(claim="ec", phase="Bound", capacity="100Gi")

    assert encoder_cache_status("ec", phase="Bound", capacity="100Gi") == plain
    assert status({"passes": 0}) == plain


def test_no_limit_of_age_is_no_text() -> None:
    policy = status({"policy": REPORT["policy"] | {"entryTtlSeconds": None}}).policy

    assert policy is not None
    assert policy.entry_ttl == ""


def test_what_a_collector_says_is_bounded() -> None:
    """The schema has these bounds: a longer status would be refused as a whole."""
    long = "x" * 10_000
    versions = [
        {"name": f"v1-{number}-{long}"[-200:], "state": "Live", "users": [f"{user}-{long}" for user in range(99)]}
        for number in range(MAX_VERSIONS)
    ]
    many = [{"name": f"v1-{number}", "state": "Condemned", "usedBytes": number, "since": long} for number in range(99)]
    found = status(
        {
            "rootId": long,
            "versions": [*versions[:1], *many],
            "policy": REPORT["policy"] | {"origins": {f"f{number}": long for number in range(99)}},
        }
    )

    assert EncoderCacheStatus.model_validate(found.model_dump(by_alias=True)) == found
    assert (len(found.versions), found.version_count) == (MAX_VERSIONS, 100)
    assert found.versions[0].state == "Live"
    assert found.versions[1].name == "v1-98"
    assert len(found.versions[0].users) == MAX_USERS
    assert found.policy is not None
    assert len(found.policy.origins) == MAX_USERS
