from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from epd.api.collection import CollectorReport, VersionReport, VersionState
from epd.api.collection import Trouble as Told
from epd.api.names import Reason
from epd.api.types import EPDDeployment
from epd.controller.cache import Collector, collected, finding, kept, must_be_mended, shown, status
from epd.controller.conditions import Finding
from epd.controller.pods import Trouble
from epd.controller.reports import Answer
from unit.controller import objects

DEPLOYMENT = {"metadata": {"name": "ec-collector"}, "status": {}}
HEALTHY = CollectorReport(claim="ec", owned=True, passes=1)
UP = objects.ready("ec-collector-1")


def epd(**cache: Any) -> EPDDeployment:
    volume = {"volume": {"persistentVolumeClaim": {"claimName": "ec"}}}
    spec = {"model": {"name": "m"}, "engine": {"image": "i"}, "prefillDecode": {}, "encoderCache": {**volume, **cache}}
    return EPDDeployment.model_validate({"metadata": {"name": "qwen", "namespace": "ai"}, "spec": spec})


CUSTOM = {"connector": "Custom", "custom": {"class": "C", "module": "m"}}
OFF = {"garbageCollection": {"enabled": False}}


def reporting(*troubles: Told, **changes: Any) -> Collector:
    report = HEALTHY.model_copy(update={"troubles": troubles, **changes})
    return Collector(deployment=DEPLOYMENT, pods=(UP,), answer=Answer(report))


def refused_pods() -> dict[str, Any]:
    words = "pods is forbidden: exceeded quota: q"
    condition = {"type": "ReplicaFailure", "status": "True", "message": words}
    return {**DEPLOYMENT, "status": {"conditions": [condition]}}


def crashed(*, seconds: int) -> dict[str, Any]:
    pod = objects.ended("ValueError: x")
    began, ended = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    times = {"startedAt": f"{began:%FT%TZ}", "finishedAt": f"{ended:%FT%TZ}"}
    pod["status"]["containerStatuses"][0]["lastState"]["terminated"] |= times
    return pod


DISAGREE = Trouble(Reason.USERS_DISAGREE, "a and b")
CASES: list[tuple[str, dict[str, Any], Collector, Finding | None]] = [
    ("custom", CUSTOM, Collector(), None),
    ("no volume", {**CUSTOM, "volume": None}, Collector(), None),
    ("disabled", OFF, Collector(placed=True),
     Finding("True", "CollectionDisabled",
             "garbageCollection.enabled is false: no collector runs, nothing is deleted")),
    ("disabled, not by others", OFF, reporting(),
     Finding("True", "Healthy", "the collector keeps the store on claim ec within its marks")),
    ("too early", {}, Collector(),
     Finding("Unknown", "Pending",
             "the claim's collector is made as soon as the claim is Bound and an engine pod has a node")),
    ("being made", {}, Collector(placed=True), Finding("Unknown", "Starting", "the claim's collector is being made")),
    ("cannot be made", {}, Collector(problem=Trouble(Reason.REJECTED_BY_API_SERVER, "no such field"), placed=True),
     Finding("False", "RejectedByAPIServer", "no such field")),
    ("a stranger's", {}, Collector(deployment=DEPLOYMENT, ours=False),
     Finding("False", "NameTaken", "Deployment ai/ec-collector exists and is not ours, so that no collector can be "
             "made. Delete or rename it.")),
    ("no pod", {}, Collector(deployment=DEPLOYMENT),
     Finding("Unknown", "Starting", "collector ec-collector is starting")),
    ("pods refused", {}, Collector(deployment=refused_pods()),
     Finding("False", "CollectorNotRunning", "pods are refused: pods is forbidden: exceeded quota: q. Raise the "
             "namespace's ResourceQuota or ask for less.")),
    ("pod in trouble", {}, Collector(deployment=DEPLOYMENT, pods=(objects.unschedulable("0/1 nodes: taint."),)),
     Finding("False", "CollectorNotRunning", "Unschedulable: pod qwen-encode-1 is Pending: 0/1 nodes: taint.")),
    ("crash loop", {}, Collector(deployment=DEPLOYMENT, pods=(crashed(seconds=59),)),
     Finding("False", "CollectorNotRunning", "CrashLoop: container engine of pod qwen-encode-1 ended with exit code 1, "
             'and said last: "ValueError: x"')),
    ("one crash in an hour", {}, Collector(deployment=DEPLOYMENT, pods=(crashed(seconds=3600),)),
     Finding("Unknown", "Starting", "collector ec-collector is starting again: container engine of pod qwen-encode-1 "
             'ended with exit code 1, and said last: "ValueError: x"')),
    ("silent", {}, Collector(deployment=DEPLOYMENT, pods=(UP,), answer=Answer(None, "its /status answers 503")),
     Finding("Unknown", "CollectorNotRunning", "the collector is up, but its /status answers 503")),
    ("first pass", {}, reporting(passes=0),
     Finding("Unknown", "Starting", "the collector's first pass over the store is under way")),
    ("trouble before the first pass", {}, reporting(Told(reason="RootOwnedByAnotherClaim", message="x"), passes=0),
     Finding("False", "RootOwnedByAnotherClaim", "x")),
    ("the worst first, all told", {},
     reporting(Told(reason="OverWatermark", message="a"), Told(reason="DryRun", message="b"),
               Told(reason="ForeignDataDominates", message="c")),
     Finding("False", "OverWatermark", "a; c")),
    ("as asked", {}, reporting(Told(reason="DryRun", message="b")), Finding("True", "DryRun", "b")),
    ("lacks", {}, reporting(Told(reason="ReducedGuarantees", message="b")), Finding("True", "ReducedGuarantees", "b")),
    ("users disagree", {}, Collector(deployment=DEPLOYMENT, pods=(UP,), answer=Answer(HEALTHY), problem=DISAGREE),
     Finding("False", "UsersDisagree", "a and b")),
    ("users disagree, and worse", {}, Collector(deployment=DEPLOYMENT, problem=DISAGREE),
     Finding("Unknown", "Starting", "collector ec-collector is starting")),
]  # fmt: skip


@pytest.mark.parametrize(("cache", "collector", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_finding(cache: dict[str, Any], collector: Collector, expected: Finding | None) -> None:
    assert finding(epd(**cache), collector) == expected


@pytest.mark.parametrize(
    ("found", "mended"),
    [
        (Finding.true(Reason.HEALTHY, ""), False),
        (Finding.unknown(Reason.COLLECTOR_NOT_RUNNING, ""), False),
        (Finding.false(Reason.COLLECTOR_NOT_RUNNING, ""), True),
        (Finding.false(Reason.ROOT_OWNED_BY_ANOTHER_CLAIM, ""), True),
        (Finding.false(Reason.NOT_WRITABLE, ""), True),
        (Finding.false(Reason.OVER_WATERMARK, ""), False),
        (Finding.false(Reason.FOREIGN_DATA_DOMINATES, ""), False),
        (Finding.false(Reason.LIVENESS_UNKNOWN, ""), False),
        (Finding.false(Reason.USERS_DISAGREE, ""), False),
    ],
)
def test_ready_goes_with_what_somebody_must_mend(found: Finding, mended: bool) -> None:
    assert must_be_mended(found) is mended


def test_for_whom_a_store_is_kept_and_collected() -> None:
    given = [epd(), epd(**OFF), epd(**CUSTOM), epd(**{**CUSTOM, "volume": None})]
    assert [kept(e) for e in given] == [True, True, False, False]
    assert [collected(e) for e in given] == [True, False, False, False]


def test_a_missing_collector_is_one_that_could_be_made() -> None:
    problem = Trouble(Reason.NAME_TAKEN, "")
    assert Collector(placed=True).missing
    assert not Collector().missing
    assert not Collector(placed=True, deployment=DEPLOYMENT).missing
    assert not Collector(placed=True, problem=problem).missing


@pytest.mark.parametrize(
    ("used", "shown_bytes", "entries", "shown_entries"),
    [(0, 0, 999, 999), (1023, 1013, 1000, 1000), (5 << 30, 5 << 30, 1234567, 1230000)],
)
def test_figures_are_coarse(used: int, shown_bytes: int, entries: int, shown_entries: int) -> None:
    version = VersionReport(name="v", state=VersionState.LIVE, entries=entries, used_bytes=used)
    report = shown(HEALTHY.model_copy(update={"used_bytes": used, "entries": entries, "versions": (version,)}))
    assert (report.used_bytes, report.entries) == (shown_bytes, shown_entries)
    assert (report.versions[0].used_bytes, report.versions[0].entries) == (shown_bytes, shown_entries)


def test_what_each_pass_changes_is_not_shown() -> None:
    later = HEALTHY.model_copy(update={"passes": 99, "last_pass": "2026-01-01T00:00:00Z"})
    assert shown(later) == shown(HEALTHY)


def test_status_is_of_the_claim_and_of_the_report_when_there_is_one() -> None:
    claim = {"status": {"phase": "Bound", "capacity": {"storage": "10Gi"}}}
    plain = status(epd(), claim, None)
    assert plain is not None
    assert (plain.claim, plain.phase, plain.capacity, plain.used_bytes) == ("ec", "Bound", "10Gi", None)
    full = status(epd(), None, HEALTHY.model_copy(update={"used_bytes": 2048}))
    assert full is not None
    assert (full.phase, full.used, full.used_bytes) == ("Missing", "2Ki", 2048)
    assert status(epd(**{**CUSTOM, "volume": None}), None, None) is None
