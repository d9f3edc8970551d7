from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from epd.api.collection import CollectorReport, VersionReport, VersionState
from epd.api.collection import Trouble as Told
from epd.api.types import EPDDeployment
from epd.controller.cache import Collector
from epd.controller.reclaim import Going, Release, Wait, decide, versions_named, wanted, with_finalizer
from epd.controller.reports import Answer

DELETED = datetime(2026, 1, 1, tzinfo=UTC)
OWN = frozenset({"v-mine", "v-too"})


def epd(**cache: Any) -> EPDDeployment:
    brought = {"volume": {"persistentVolumeClaim": {"claimName": "ec", "subPath": "x"}}, "reclaimPolicy": "Delete"}
    spec = {"model": {"name": "m"}, "engine": {"image": "i"}, "prefillDecode": {}, "encoderCache": {**brought, **cache}}
    metadata = {"name": "qwen", "namespace": "ai", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    return EPDDeployment.model_validate({"metadata": metadata, "spec": spec})


def version(name: str = "v-mine", *users: str) -> VersionReport:
    return VersionReport(name=name, state=VersionState.CONDEMNED, used_bytes=1 << 30, users=users)


def going(report: CollectorReport | None, **changes: Any) -> Going:
    collector = Collector(deployment={"metadata": {"name": "c"}}, answer=Answer(report))
    known: dict[str, Any] = {
        "epd": epd(), "claim": {"metadata": {}}, "collector": collector, "engines": 0, "seen": 1,
        "others": frozenset(), "alone": False,
    }  # fmt: skip
    return Going(**{**known, **changes})


def report(*versions: VersionReport, **changes: Any) -> CollectorReport:
    return CollectorReport(claim="ec", **{"owned": True, "passes": 2, "versions": versions, **changes})


def waits(what: Going, seconds: float = 0) -> str:
    verdict = decide(what, own=OWN, now=DELETED + timedelta(seconds=seconds))
    assert isinstance(verdict, Wait)
    return verdict.words


def note(what: Going, seconds: float = 0) -> tuple[str, str, str]:
    verdict = decide(what, own=OWN, now=DELETED + timedelta(seconds=seconds))
    assert isinstance(verdict, Release)
    return verdict.note.type, str(verdict.note.reason), verdict.note.message


def test_who_needs_the_finalizer() -> None:
    template = {"volumeClaimTemplate": {"spec": {}}}
    assert wanted(epd())
    assert not wanted(epd(reclaimPolicy="Retain"))
    assert not wanted(epd(reclaimPolicy=None))
    assert not wanted(epd(volume=template))
    assert not wanted(epd(connector="Custom", custom={"class": "C", "module": "m"}))
    assert not wanted(EPDDeployment.model_validate(
        {"metadata": {"name": "q"}, "spec": {"model": {"name": "m"}, "engine": {"image": "i"}, "prefillDecode": {}}}
    ))  # fmt: skip


def test_what_is_waited_for_in_order() -> None:
    assert waits(going(report(), engines=2)) == "2 engine pods are stopping"
    assert waits(going(None)) == "the claim's collector does not answer"
    assert waits(going(report(passes=1))) == "the collector's next pass over the store is waited for"
    assert waits(going(report(), seen=None)) == "the collector's next pass over the store is waited for"
    assert waits(going(report(version()))) == "the collector is deleting v-mine (1Gi)"
    trouble = Told(reason="LivenessUnknown", message="the API server is silent")
    assert waits(going(report(version(), troubles=(trouble,)))) == (
        "the collector is deleting v-mine (1Gi) (the API server is silent)"
    )


def test_a_pass_that_failed_tells_neither_that_all_is_gone_nor_that_all_is_lost() -> None:
    trouble = Told(reason="CollectionFailed", message="the root cannot be worked on: [Errno 116] Stale file handle")
    assert waits(going(report(owned=False, troubles=(trouble,)))) == (
        "the collector's last pass failed, so that it is not known what is left (the root cannot be worked on: "
        "[Errno 116] Stale file handle)"
    )


def test_it_goes_when_nothing_of_its_own_is_left() -> None:
    gone = "the entries of v-mine, v-too are gone from ec, directory x"
    assert note(going(report())) == ("Normal", "Reclaimed", gone)
    assert note(going(report(version("v-other", "b")))) == ("Normal", "Reclaimed", gone)


def test_versions_of_others_stay() -> None:
    text = "the entries of v-too are gone from ec, directory x; kept, since others use them: v-mine"
    named = going(report(version("v-mine", "b")), others=frozenset({"v-mine"}))
    assert note(named) == ("Normal", "Reclaimed", text)
    assert note(going(report(version("v-mine", "b"))))[1] == "Reclaimed"  # the collector knows a user of it
    assert waits(going(report(version("v-mine", "qwen")))) == "the collector is deleting v-mine (1Gi)"


def test_the_last_user_is_told_of_what_stays() -> None:
    older = version("v-older")
    assert note(going(report(older)))[2].endswith("directory x")  # a collector stays, and deletes it in time
    assert note(going(report(older), alone=True))[2].endswith(
        "left, since unused for less than versionGracePeriod: v-older (1Gi)"
    )


def test_five_minutes_and_not_longer() -> None:
    assert waits(going(report(version())), 299)
    assert note(going(report(version())), 300) == (
        "Warning", "ReclaimGivenUp",
        "not done in 5 min: the collector is deleting v-mine (1Gi). Left on claim ec, directory x: v-mine (1Gi). To "
        "free it, delete these directories from a pod that mounts the claim.",
    )  # fmt: skip
    assert "Left on claim ec, directory x: v-mine, v-too." in note(going(None), 300)[2]
    assert note(going(report()), 9999)[1] == "Reclaimed"


def test_many_versions_are_counted() -> None:
    own = frozenset(f"v-{n}" for n in range(7))
    verdict = decide(going(report(*map(version, sorted(own)))), own=own, now=DELETED)
    assert isinstance(verdict, Wait)
    assert verdict.words.endswith("v-4 (1Gi) and 2 more")


def test_versions_named_by_spec_and_status_also_when_one_cannot_be_read() -> None:
    parent = epd().model_dump(by_alias=True, exclude_none=True)
    parent["status"] = {"modelVersion": "v-a", "roles": [
        {"name": "encode", "desired": 1, "ready": 1, "updated": 1, "modelVersions": ["v-b"]}]}  # fmt: skip
    (by_spec,) = versions_named(parent) - {"v-a", "v-b"}
    assert by_spec.startswith("v1-m-")
    assert versions_named({**parent, "spec": 3}) == {"v-a", "v-b"}
    assert versions_named({**parent, "status": {"roles": 3}}) == {by_spec}


@pytest.mark.parametrize(
    ("held", "needed", "expected"),
    [
        ([], True, ["epd.dev/encoder-cache"]),
        (["a"], True, ["a", "epd.dev/encoder-cache"]),
        (["epd.dev/encoder-cache"], True, None),
        (["epd.dev/encoder-cache", "a"], False, ["a"]),
        (["a"], False, None),
    ],
)
def test_only_our_finalizer_comes_and_goes(held: list[str], needed: bool, expected: list[str] | None) -> None:
    assert with_finalizer({"metadata": {"finalizers": held}}, wanted=needed) == expected
