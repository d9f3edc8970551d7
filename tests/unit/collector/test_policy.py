from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from epd.api.quantity import duration_seconds
from epd.collector.inputs import Policy
from epd.collector.policy import NOTHING, InForce, policy_in_force
from epd.collector.seen import SeenEPD
from unit.collector.listed import ROOT, epd

GIB = 1 << 30
QWEN = epd().version


def in_force(*epds: SeenEPD, requested: int | None = 100 * GIB) -> InForce:
    return policy_in_force(epds, ROOT, requested_bytes=requested)


def user(name: str, **collection: Any) -> SeenEPD:
    return epd(name, collection=collection)


def test_the_defaults_of_one_user() -> None:
    assert in_force(epd()) == InForce(
        policy=Policy(
            enabled=True,
            dry_run=False,
            version_grace=3600,
            entry_ttl=None,
            min_idle=1800,
            high_percent=85,
            low_percent=70,
            max_sizes=((frozenset({QWEN}), 100 * GIB),),
        ),
        origins=dict.fromkeys(
            (
                "enabled",
                "dryRun",
                "versionGracePeriod",
                "entryTTL",
                "minIdle",
                "highWatermarkPercent",
                "lowWatermarkPercent",
            ),
            "qwen",
        ),
        users=("qwen",),
    )


def test_nobody_allows_nothing() -> None:
    assert in_force() == InForce(policy=NOTHING)
    assert in_force(epd(claim="other")) == InForce(policy=NOTHING)
    assert not NOTHING.enabled


def test_of_two_users_the_more_careful_value_counts_and_is_named() -> None:
    first = user("a", versionGracePeriod="2h", minIdle="1h", highWatermarkPercent=80, lowWatermarkPercent=60)
    second = user("b", entryTTL="72h", highWatermarkPercent=90, lowWatermarkPercent=50, dryRun=True, maxSize="10Gi")
    found = in_force(second, first)
    assert found.policy == Policy(
        enabled=True,
        dry_run=True,
        version_grace=7200,
        entry_ttl=None,
        min_idle=3600,
        high_percent=90,
        low_percent=60,
        max_sizes=((frozenset({QWEN}), 100 * GIB),),
    )
    assert found.origins == {
        "enabled": "a",
        "dryRun": "b",
        "versionGracePeriod": "a",
        "entryTTL": "a",
        "minIdle": "a",
        "highWatermarkPercent": "b",
        "lowWatermarkPercent": "a",
    }
    assert found.users == ("a", "b")


def test_one_who_disables_stops_all() -> None:
    found = in_force(user("a"), user("b", enabled=False))
    assert (found.policy.enabled, found.origins["enabled"]) == (False, "b")


def test_the_longest_ttl_counts_where_all_have_one() -> None:
    assert in_force(user("a", entryTTL="72h"), user("b", entryTTL="96h")).policy.entry_ttl == 96 * 3600


def test_a_policy_that_cannot_be_read_stops_all() -> None:
    found = in_force(user("a"), user("b", minIdle="for ever"))
    assert (found.policy.enabled, found.origins["enabled"], found.unreadable) == (False, "b", ("b",))
    alone = in_force(user("b", minIdle="for ever"))
    assert (alone.policy, alone.unreadable) == (NOTHING, ("b",))


def test_a_spec_that_cannot_be_read_still_has_its_policy() -> None:
    found = in_force(epd(spec={"model": {}}, collection={"minIdle": "2h"}))
    assert (found.policy.enabled, found.policy.min_idle) == (True, 7200)


def test_who_leaves_counts_only_while_it_waits_for_its_entries() -> None:
    leaving = {"deletionTimestamp": "2026-11-29T20:00:00Z"}
    gone = epd("b", collection={"enabled": False}, metadata=leaving)
    waiting = epd("b", collection={"enabled": False}, metadata=leaving | {"finalizers": ["epd.dev/encoder-cache"]})
    assert in_force(user("a"), gone).policy.enabled
    assert not in_force(user("a"), waiting).policy.enabled


def test_files_of_another_connector_are_no_entries() -> None:
    other = epd("b", connector="Custom", collection={"enabled": False})
    assert in_force(user("a"), other).users == ("a",)


def test_entries_of_the_example_layout_go_only_if_all_its_users_allow_it() -> None:
    def example(name: str, allowed: bool) -> SeenEPD:
        return epd(name, connector="Example", collection={"evictLiveEntries": allowed})

    assert in_force(example("a", True), user("b")).policy.evict_example
    assert not in_force(example("a", True), example("b", False)).policy.evict_example
    assert not in_force(user("a", evictLiveEntries=True)).policy.evict_example


def test_a_shared_version_counts_for_the_user_that_allows_most() -> None:
    small, large = user("a", maxSize="1Gi"), user("b", maxSize="2Gi")
    own = epd("c", collection={"maxSize": "3Gi"}, spec={"model": {"name": "other"}}, status={"modelVersion": QWEN})
    assert in_force(small, large).policy.max_sizes == ((frozenset({QWEN}), 2 * GIB),)
    assert in_force(small, large, own).policy.max_sizes == ((frozenset({QWEN, own.version}), 3 * GIB),)


def test_without_a_known_request_there_is_no_limit() -> None:
    assert in_force(epd(), requested=None).policy.max_sizes == ()
    assert in_force(user("a", maxSize="1Gi"), user("b"), requested=None).policy.max_sizes == ()


durations = st.integers(min_value=1, max_value=99).map(lambda hours: f"{hours}h")
collections = st.fixed_dictionaries(
    {
        "enabled": st.booleans(),
        "dryRun": st.booleans(),
        "versionGracePeriod": durations,
        "entryTTL": st.none() | durations,
        "minIdle": durations,
        "highWatermarkPercent": st.integers(min_value=1, max_value=99),
        "lowWatermarkPercent": st.integers(min_value=0, max_value=98),
        "maxSize": st.none() | st.integers(min_value=1, max_value=9).map(lambda size: f"{size}Gi"),
        "evictLiveEntries": st.booleans(),
    }
)
models = st.sampled_from(["m", "n"])
connectors = st.sampled_from(["Managed", "Example"])


@given(st.lists(st.tuples(collections, models, connectors), min_size=1, max_size=4), st.none() | st.just(5 * GIB))
def test_the_policy_is_never_less_careful_than_any_user(
    users: list[tuple[dict[str, Any], str, str]], requested: int | None
) -> None:
    seen = [
        epd(f"u{number}", collection=collection, connector=connector, spec={"model": {"name": model}})
        for number, (collection, model, connector) in enumerate(users)
    ]
    policy = in_force(*seen, requested=requested).policy
    limits = {version: limit for versions, limit in policy.max_sizes for version in versions}
    for each, (collection, _, connector) in zip(seen, users, strict=True):
        assert policy.enabled <= collection["enabled"]
        assert policy.dry_run >= collection["dryRun"]
        assert policy.version_grace >= duration_seconds(collection["versionGracePeriod"])
        assert policy.min_idle >= duration_seconds(collection["minIdle"])
        ttl = collection["entryTTL"]
        assert policy.entry_ttl is None or (ttl is not None and policy.entry_ttl >= duration_seconds(ttl))
        assert policy.high_percent >= collection["highWatermarkPercent"]
        assert policy.low_percent >= min(collection["lowWatermarkPercent"], policy.high_percent - 1)
        if connector == "Example":
            assert policy.evict_example <= collection["evictLiveEntries"]
        size = collection["maxSize"]
        own = requested if size is None else int(size.removesuffix("Gi")) * GIB
        assert limits.get(each.version, float("inf")) >= (float("inf") if own is None else own)
    assert policy.low_percent < policy.high_percent


@given(st.permutations([user(name, minIdle=f"{n}h", maxSize=f"{n}Gi") for n, name in enumerate("abc", 1)]))
def test_the_order_of_the_list_does_not_matter(users: list[SeenEPD]) -> None:
    assert in_force(*users) == in_force(*sorted(users, key=lambda each: each.name))
