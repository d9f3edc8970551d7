from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epd.collector.inputs import Declaration
from epd.collector.liveness import MOST_AGE, Guard, Named, liveness, named_versions, unknown
from epd.collector.seen import Listed, SeenPod, SeenWorkload
from unit.collector.listed import ROOT, epd

GRACE = 3600.0
DELETED = {"deletionTimestamp": "2026-11-29T20:00:00Z"}
FINALIZING = DELETED | {"finalizers": ["epd.dev/encoder-cache"]}
QWEN = epd().version


def listed(**given: Any) -> Listed:
    return Listed(taken=0, **given)


def test_an_object_names_versions_of_spec_and_status() -> None:
    named = named_versions(listed(epds=(epd(status={"modelVersion": "old"}),)), ROOT)
    assert named.live == {QWEN: ("qwen",), "old": ("qwen",)}


def test_users_are_those_of_the_root_but_everybody_keeps_a_version() -> None:
    epds = (epd("b"), epd("a"), epd("c", claim="other"), epd("d", claim="other", status={"modelVersion": "theirs"}))
    assert named_versions(listed(epds=epds), ROOT).live == {QWEN: ("a", "b"), "theirs": ()}


def test_pods_and_scaled_workloads_name_versions() -> None:
    named = named_versions(
        listed(
            pods=(SeenPod(uid="1", version="a"), SeenPod(uid="2")),
            workloads=(
                SeenWorkload(version="b", replicas=1),
                SeenWorkload(version="c", replicas=0),
                SeenWorkload(version="", replicas=1),
            ),
        ),
        ROOT,
    )
    assert named.live == {"a": (), "b": ()}
    assert named.pods == {"1", "2"}


def test_what_is_being_deleted_counts_while_it_has_an_engine() -> None:
    engine, proxy = SeenPod(uid="1", epd="qwen", engine=True), SeenPod(uid="2", epd="qwen")
    gone = epd(metadata=DELETED)
    assert named_versions(listed(epds=(gone,), pods=(engine, proxy)), ROOT).live == {QWEN: ("qwen",)}
    assert named_versions(listed(epds=(gone,), pods=(proxy,)), ROOT) == Named(
        live={}, pods=frozenset({"2"}), declared={QWEN: Declaration(layout="Managed", inputs=gone.inputs)}
    )


def test_who_waits_for_its_entries_to_go_needs_no_grace() -> None:
    assert named_versions(listed(epds=(epd(metadata=FINALIZING),)), ROOT).expedited == {QWEN}


@pytest.mark.parametrize(
    "other",
    [
        {"epds": (epd(metadata=FINALIZING), epd("other"))},
        {"epds": (epd(metadata=FINALIZING), epd("other", claim="elsewhere"))},
        {"epds": (epd(metadata=FINALIZING),), "pods": (SeenPod(uid="1", version=QWEN),)},
        {"epds": (epd(metadata=FINALIZING),), "pods": (SeenPod(uid="1", epd="qwen", engine=True),)},
        {"epds": (epd(metadata=FINALIZING),), "workloads": (SeenWorkload(version=QWEN, replicas=1),)},
        {"epds": (epd(metadata=FINALIZING, claim="elsewhere"),)},
        {"epds": (epd(metadata=DELETED),)},
        {"epds": (epd(metadata=FINALIZING, reclaim="Retain"),)},
        {"epds": (epd(metadata=FINALIZING, connector="Unheard-of", status={"modelVersion": "v"}),)},
    ],
)
def test_nothing_else_may_name_what_is_expedited(other: dict[str, Any]) -> None:
    assert named_versions(listed(**other), ROOT).expedited == frozenset()


def test_layouts_are_declared_by_users_and_the_weaker_one_wins() -> None:
    def declared(*epds: Any) -> dict[str, str]:
        found = named_versions(listed(epds=epds), ROOT).declared
        return {version: each.layout for version, each in found.items()}

    managed, example = epd("a"), epd("b", connector="Example")
    assert declared(managed) == {QWEN: "Managed"}
    assert declared(managed, example) == declared(example, managed) == {QWEN: "Example"}
    assert declared(epd(claim="other"), epd(connector="Custom")) == {}


def test_an_unreadable_user_makes_every_answer_unusable() -> None:
    broken = epd("b", spec={"model": {}}, status={"modelVersion": "seen"})
    named = named_versions(listed(epds=(epd("a"), broken)), ROOT)
    assert set(named.live) == {QWEN, "seen"}
    answer = liveness(named, taken=1, now=2)
    assert not answer.valid
    assert answer.message.startswith("EPDDeployment b uses this claim and can't be read (")
    elsewhere = epd("b", claim="other", spec={"model": {}})
    assert elsewhere.unreadable
    assert liveness(named_versions(listed(epds=(elsewhere,)), ROOT), taken=1, now=2).valid


def test_an_answer_that_took_too_long_is_none() -> None:
    named = Named(live={"a": ()}, expedited=frozenset({"b"}))
    assert liveness(named, taken=0, now=MOST_AGE).valid
    late = liveness(named, taken=0, now=MOST_AGE + 1)
    assert (late.valid, late.expedited) == (False, frozenset())
    assert late.message == "the API server took more than 300 s for the lists"


def test_no_answer() -> None:
    answer = unknown("HTTP 403", taken=3)
    assert (answer.valid, answer.live, answer.message, answer.taken) == (False, {}, "HTTP 403", 3)


def named_of(versions: str, *, expedited: str = "") -> Named:
    return Named(live=dict.fromkeys(versions, ()), expedited=frozenset(expedited))


def judge(guard: Guard, versions: str, taken: float, *, expedited: str = "", grace: float = GRACE) -> bool:
    return not guard.judge(named_of(versions, expedited=expedited), taken=taken, grace=grace)


def test_half_of_the_last_answer_is_believed_and_less_is_not() -> None:
    guard = Guard()
    assert judge(guard, "abcd", 0)
    assert judge(guard, "ab", 1)
    guard = Guard()
    assert judge(guard, "abcd", 0)
    assert not judge(guard, "axyz", 1), "as many, but others"


def test_an_empty_answer_is_held_even_at_the_start() -> None:
    guard = Guard()
    assert guard.judge(named_of(""), taken=10, grace=GRACE) == (
        "nothing in the namespace names a version; if that stays so for versionGracePeriod (1h), it is believed"
    )
    assert not judge(guard, "", 10 + GRACE - 1)
    assert judge(guard, "", 10 + GRACE)
    assert judge(guard, "", 10 + GRACE + 1), "and from then on it is no surprise"


def test_a_shrunken_answer_is_believed_when_it_stayed_so_for_the_grace() -> None:
    guard = Guard()
    assert judge(guard, "abc", 0)
    assert guard.judge(named_of("a"), taken=100, grace=GRACE) == (
        "only 1 of 3 versions that were named before still are; if that stays so for versionGracePeriod (1h), it is"
        " believed"
    )
    assert not judge(guard, "a", 99 + GRACE)
    assert judge(guard, "a", 100 + GRACE)
    assert judge(guard, "a", 101 + GRACE)


def test_a_good_answer_ends_a_suspicion() -> None:
    guard = Guard()
    assert judge(guard, "abc", 0)
    assert not judge(guard, "", 100)
    assert judge(guard, "abc", 200)
    assert not judge(guard, "", 100 + GRACE)
    assert judge(guard, "", 100 + 2 * GRACE)


def test_one_sighting_proves_nothing_even_without_a_grace() -> None:
    guard = Guard()
    assert judge(guard, "abc", 0)
    assert not judge(guard, "", 1, grace=0)
    assert judge(guard, "", 1, grace=0)


def test_what_is_expedited_has_not_vanished() -> None:
    guard = Guard()
    assert judge(guard, "a", 0)
    assert judge(guard, "", 1, expedited="a")
    assert judge(guard, "", 2), "its object is gone, as announced"


@given(
    st.lists(
        st.tuples(st.frozensets(st.sampled_from("abcdef")), st.floats(min_value=0, max_value=GRACE / 3)), max_size=12
    )
)
def test_no_answer_within_the_grace_loses_more_than_half(answers: list[tuple[frozenset[str], float]]) -> None:
    """Whatever the order of answers: what is believed keeps half, or was suspicious for a whole grace."""
    guard, last, now, doubted_since = Guard(), frozenset[str](), 0.0, None
    for versions, pause in answers:
        now += pause
        if judge(guard, "".join(sorted(versions)), now):
            small = 2 * len(last & versions) < len(last) or not versions
            proven = doubted_since is not None and now - doubted_since >= GRACE
            assert not small or proven or not last
            last, doubted_since = versions, None
        else:
            doubted_since = now if doubted_since is None else doubted_since
