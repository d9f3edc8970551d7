from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from epd.api.collection import (
    CollectionReport,
    CollectorReport,
    PolicyReport,
    Trouble,
    VersionReport,
    VersionState,
    VolumeReport,
)
from epd.api.names import Reason
from epd.collector.liveness import MOST_AGE, unknown
from epd.collector.policy import InForce
from epd.collector.report import SILENT_SECONDS, View, moment, report
from epd.collector.result import PassResult, TroubleFacts
from epd.collector.tally import Tally
from unit.collector.views import POLICY, view


def quiet(**changes: Any) -> View:
    return view(tally=Tally(), **changes)


def reasons(given: View) -> list[str]:
    return [trouble.reason for trouble in report(given).troubles]


def test_everything_a_pass_found() -> None:
    assert report(view()) == CollectorReport(
        claim="ec",
        sub_path="qwen",
        root_id="r",
        owned=True,
        passes=4,
        last_pass="2026-11-30T00:53:20Z",
        volume=VolumeReport(capacity_bytes=100, used_bytes=60, capacity_inodes=10, used_inodes=4),
        used_bytes=50,
        entries=7,
        foreign_bytes=3,
        foreign_entries=2,
        trash_bytes=5,
        freed_bytes=11,
        versions=(
            VersionReport(name="v", state=VersionState.LIVE, entries=7, used_bytes=45, users=("a",)),
            VersionReport(name="w", state=VersionState.CONDEMNED, since="2026-11-30T00:53:20Z"),
        ),
        policy=PolicyReport(
            enabled=True,
            version_grace_seconds=3600,
            entry_ttl_seconds=72 * 3600,
            min_idle_seconds=1800,
            high_watermark_percent=85,
            low_watermark_percent=70,
            origins={"enabled": "a", "dryRun": "b"},
        ),
        last_collection=CollectionReport(
            finished="1970-01-01T00:00:00Z", removed_entries=1, removed_versions=2, freed_bytes=3
        ),
        liveness_valid=True,
        troubles=(Trouble(reason="OverWatermark", message="grow it"),),
    )


def test_the_operator_reads_what_is_written() -> None:
    text = report(view()).model_dump_json(by_alias=True)
    assert CollectorReport.model_validate_json(text) == report(view())
    assert json.loads(text)["lastCollection"]["freedBytes"] == 3


def test_before_the_first_pass_nothing_is_a_trouble() -> None:
    given = quiet(in_force=InForce(), liveness=None, last_valid=None)
    assert report(given).passes == 0
    assert reasons(given) == []


def test_moments_are_whole_seconds() -> None:
    assert moment(0.999) == "1970-01-01T00:00:00Z"


def test_a_claim_that_is_gone() -> None:
    assert reasons(quiet(claim_missing=True)) == ["ClaimNotFound"]


@pytest.mark.parametrize(("seconds", "expected"), [(SILENT_SECONDS - 1, []), (SILENT_SECONDS, ["CollectionFailed"])])
def test_a_volume_that_does_not_answer(seconds: float, expected: list[str]) -> None:
    assert reasons(quiet(silent=1000 - seconds)) == expected


def test_a_pass_that_broke_off() -> None:
    assert report(quiet(failure="ValueError: x")).troubles == (
        Trouble(
            reason="CollectionFailed",
            message="a pass broke off: ValueError: x. It is tried again; the collector's log has the trace",
        ),
    )


@pytest.mark.parametrize(
    ("last_valid", "expected"),
    [(None, ["LivenessUnknown"]), (1000 - MOST_AGE, []), (999 - MOST_AGE, ["LivenessUnknown"])],
)
def test_one_failed_answer_is_no_trouble_and_none_for_long_is(last_valid: float | None, expected: list[str]) -> None:
    bad = unknown("HTTP 503", taken=1000)
    said = (TroubleFacts(reason=Reason.LIVENESS_UNKNOWN, message="of the pass"),)
    tally = Tally(passes=1, latest=PassResult(troubles=said))
    given = view(tally=tally, liveness=bad, last_valid=last_valid)
    assert reasons(given) == expected
    assert not report(given).liveness_valid
    assert all("HTTP 503" in trouble.message for trouble in report(given).troubles)


def test_what_was_asked_for_comes_last_and_names_who_asked() -> None:
    off = dataclasses.replace(POLICY, enabled=False)
    given = view(in_force=InForce(policy=off, origins={"enabled": "b"}, users=("a", "b")))
    assert report(given).troubles == (
        Trouble(reason="OverWatermark", message="grow it"),
        Trouble(
            reason="CollectionDisabled",
            message="EPDDeployment b has garbageCollection.enabled: false, so nothing is deleted from the claim",
        ),
    )
    dry = dataclasses.replace(POLICY, dry_run=True)
    message = report(view(in_force=InForce(policy=dry, origins={"dryRun": "a"}, users=("a",)))).troubles[-1].message
    assert message.startswith("EPDDeployment a has garbageCollection.dryRun: true")


def test_a_policy_that_cannot_be_read() -> None:
    given = quiet(in_force=InForce(users=("a",), unreadable=("a",)))
    assert reasons(given) == ["CollectionDisabled"]
    assert "EPDDeployment a can't be read" in report(given).troubles[0].message


def test_the_worst_comes_first_and_each_reason_once() -> None:
    said = tuple(
        TroubleFacts(reason=reason, message="m")
        for reason in (Reason.FOREIGN_DATA_DOMINATES, Reason.ROOT_OWNED_BY_ANOTHER_CLAIM, Reason.COLLECTION_FAILED)
    )
    given = view(tally=Tally(latest=PassResult(troubles=said)), failure="x")
    assert reasons(given) == ["RootOwnedByAnotherClaim", "CollectionFailed", "ForeignDataDominates"]
