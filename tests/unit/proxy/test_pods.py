from __future__ import annotations

from typing import Any

import pytest

from epd.api.names import Role
from epd.proxy.pods import Member, Members, member_of, what_is_read
from unit.proxy.podobjects import pod


@pytest.mark.parametrize(
    "changes",
    [{}, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, {"containers": []}, {"status": {"podIP": None}}],
)
def test_what_is_read_is_enough(changes: dict[str, Any]) -> None:
    given = pod(metadata={"managedFields": [{}], **changes.pop("metadata", {})}, **changes)
    kept = what_is_read(given)
    assert member_of(kept) == member_of(given)
    assert "managedFields" not in kept["metadata"]
    assert [container["name"] for container in kept["spec"]["containers"]] in ([], ["engine"])


READY = Member(
    name="a", role=Role.ENCODE, pairing="p1", address="http://10.0.0.1:8000", ready=True, model_version="v1-x"
)


def test_a_pod_in_rotation() -> None:
    assert member_of(pod()) == READY


@pytest.mark.parametrize(
    "changes",
    [
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
        {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
        {"status": {"conditions": [{"type": "ContainersReady", "status": "True"}]}},
        {"status": {"conditions": None}},
    ],
)
def test_a_pod_out_of_rotation(changes: dict[str, Any]) -> None:
    member = member_of(pod(**changes))
    assert member is not None
    assert not member.ready


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": {"llm-d.ai/role": "proxy"}},
        {"metadata": {"labels": None}},
        {"status": {"podIP": None}},
        {"containers": []},
        {"containers": [{"name": "engine"}]},
        {"containers": [{"name": "engine", "ports": [{"name": "metrics", "containerPort": 1}]}]},
    ],
)
def test_what_is_no_engine(changes: dict[str, Any]) -> None:
    assert member_of(pod(**changes)) is None


def test_ipv6() -> None:
    member = member_of(pod(status={"podIP": "fd00::1"}))
    assert member is not None
    assert member.address == "http://[fd00::1]:8000"


SECURE = [
    {"name": "engine", "ports": [{"name": "metrics", "containerPort": 1}, {"name": "https", "containerPort": 8443}]}
]


def test_a_port_says_what_its_pod_speaks() -> None:
    members = Members(tls=True)
    members.replace_pods([pod("a", containers=SECURE), pod("b", containers=SECURE, status={"podIP": "fd00::1"})])
    members.apply_event("MODIFIED", pod("a", containers=SECURE, status={"podIP": "10.0.0.2"}))
    members.apply_event("ADDED", pod("c"))
    assert [member.address for member in members.all()] == [
        "https://10.0.0.2:8443",
        "https://[fd00::1]:8443",
        "http://10.0.0.1:8000",
    ]


def test_without_tls_pods_that_speak_it_are_left_alone() -> None:
    members = Members()
    members.replace_pods([pod("a", containers=SECURE), pod("b")])
    members.apply_event("ADDED", pod("c", containers=SECURE))
    assert [member.name for member in members.all()] == ["b"]


def test_members_follow_lists_and_events() -> None:
    members = Members()
    assert not members.synced
    members.replace_pods([pod("b"), pod("a"), pod("proxy", labels={"llm-d.ai/role": "proxy"})])
    assert members.synced
    assert [m.name for m in members.all()] == ["a", "b"]
    members.apply_event("ADDED", pod("c", labels={"llm-d.ai/role": "prefill-decode"}))
    members.apply_event("MODIFIED", pod("b", metadata={"deletionTimestamp": "x"}))
    assert [m.name for m in members.ready(Role.ENCODE)] == ["a"]
    assert [m.name for m in members.ready(Role.PREFILL_DECODE)] == ["c"]
    members.apply_event("MODIFIED", pod("a", status={"podIP": ""}))
    members.apply_event("DELETED", pod("c", labels={"llm-d.ai/role": "prefill-decode"}))
    members.apply_event("DELETED", pod("never seen"))
    assert [m.name for m in members.all()] == ["b"]
    members.replace_pods([])
    assert members.all() == ()


def ready(name: str, role: Role = Role.ENCODE, pairing: str = "p") -> Member:
    return Member(name=name, role=role, pairing=pairing, address="http://a", ready=True)


def test_members_by_role_and_pairing() -> None:
    members = Members()
    out = Member(name="x", role=Role.ENCODE, pairing="z", address="http://a", ready=False)
    d, e, q = ready("d", Role.PREFILL_DECODE), ready("e"), ready("c", pairing="q")
    members.replace([d, e, q, out])
    assert members.ready(Role.ENCODE) == (q, e)
    assert members.ready(Role.ENCODE, "p") == (e,)
    assert (members.ready(Role.ENCODE, "z"), members.ready(Role.DECODE)) == ((), ())
    assert members.pairings(Role.ENCODE) == {"p", "q"}
    assert members.pairings(Role.DECODE) == frozenset()
    members.replace([e])
    assert (members.ready(Role.ENCODE), members.ready(Role.ENCODE, "q")) == ((e,), ())
    assert members.pairings(Role.ENCODE) == {"p"}


def test_only_changes_are_told() -> None:
    members, told = Members(), []
    members.on_change(lambda: told.append(members.version))
    members.replace_pods([pod("a"), pod("b")])
    members.replace_pods([pod("b"), pod("a")])
    members.apply_event("MODIFIED", pod("a"))
    members.apply_event("DELETED", pod("never seen"))
    members.apply_event("MODIFIED", {"metadata": {"name": "no engine"}})
    assert told == [1]
    members.apply_event("MODIFIED", pod("a", metadata={"deletionTimestamp": "x"}))
    members.apply_event("DELETED", pod("a"))
    members.replace([])
    assert told == [1, 2, 3, 4]


def test_an_empty_list_is_a_list() -> None:
    members = Members()
    members.replace([])
    assert (members.synced, members.version) == (True, 0)
