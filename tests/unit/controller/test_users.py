from __future__ import annotations

from typing import Any

from epd.api.types import EPDDeployment
from epd.controller.keys import ClaimKey
from epd.controller.users import users_of, uses_claim

KEY = ClaimKey("ai", "ec")


def epd(
    name: str,
    *,
    claim: str = "ec",
    path: str = "",
    collection: bool = True,
    connector: str = "Managed",
    **metadata: Any,
) -> dict[str, Any]:
    volume = {"persistentVolumeClaim": {"claimName": claim, "subPath": path}}
    custom = {"custom": {"class": "C", "module": "m"}} if connector == "Custom" else {}
    cache = {"volume": volume, "garbageCollection": {"enabled": collection}, "connector": connector, **custom}
    return {
        "metadata": {"name": name, "namespace": "ai", **metadata},
        "spec": {"model": {"name": "m"}, "engine": {"image": "i"}, "prefillDecode": {}, "encoderCache": cache},
    }


def roots(*parents: dict[str, Any]) -> list[tuple[str, list[str], bool]]:
    found = users_of(KEY, parents)
    return [(r.sub_path, [u.metadata.name for u in r.users], r.collected) for r in found.roots]


def test_users_are_grouped_by_directory_and_sorted() -> None:
    assert roots(epd("b"), epd("a"), epd("c", path="x"), epd("d", claim="other")) == [
        ("", ["a", "b"], True), ("x", ["c"], True),
    ]  # fmt: skip


def test_a_collector_is_wanted_as_long_as_one_user_wants_it() -> None:
    assert roots(epd("a", collection=False), epd("b")) == [("", ["a", "b"], True)]
    assert roots(epd("a", collection=False), epd("b", connector="Custom")) == [("", ["a", "b"], False)]


def test_who_used_the_claim_before_is_no_user() -> None:
    before = {**epd("a", claim="other"), "status": {"encoderCache": {"claim": "ec"}}}
    assert roots(before) == []


def test_who_is_being_deleted_counts_while_its_entries_are_removed() -> None:
    now = "2026-01-01T00:00:00Z"
    leaving, reclaiming = (
        epd("a", deletionTimestamp=now, finalizers=["other"]),
        epd("b", deletionTimestamp=now, finalizers=["epd.dev/encoder-cache"]),
    )
    assert roots(leaving, reclaiming) == [("", ["b"], True)]
    assert [uses_claim(EPDDeployment.model_validate(p)) for p in (leaving, reclaiming, epd("c"))] == [False, True, True]


def test_what_cannot_be_read_is_told_only_where_it_names_the_claim() -> None:
    broken, elsewhere = epd("a"), epd("b", claim="other")
    broken["spec"]["engine"] = elsewhere["spec"]["engine"] = 3
    assert users_of(KEY, [broken]).unreadable
    assert not users_of(KEY, [elsewhere]).unreadable
