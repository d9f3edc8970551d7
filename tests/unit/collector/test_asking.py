from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from epd.collector.apiserver import ApiServer
from epd.collector.asking import Asker
from epd.collector.endpoint import by_address
from epd.collector.inputs import Claim
from epd.collector.policy import InForce
from unit.clocks import Clock
from unit.collector.fake_api import Answer, FakeApi, Request, refusal, serving
from unit.collector.listed import (
    CLAIM,
    DEPLOYMENTS,
    EPDS,
    PODS,
    REPLICASETS,
    ROOT,
    epd,
    namespace_ai,
    raw_epd,
    raw_pod,
)

QWEN = epd().version


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with serving(namespace_ai()) as fake:
        yield fake


def asker(api: FakeApi, clock: Any = None) -> Asker:
    return Asker(ApiServer(by_address(api.url), page_size=1), namespace="ai", root=ROOT, clock=clock or Clock())


def test_claim_policy_and_versions(api: FakeApi) -> None:
    ask = asker(api)
    brief = ask.begin()
    assert brief.claim == Claim(name="ai/ec", uid="u", adopts="r")
    assert brief.in_force.policy.max_sizes == ((frozenset({QWEN}), 1 << 30),)
    assert not brief.problem
    answer = ask()
    assert (answer.valid, answer.live, answer.pods) == (
        True,
        {"a": (), "c": (), "d": (), QWEN: ("qwen",)},
        {"1", "2"},
    )
    assert ask.last is answer


def test_versions_are_asked_for_from_spec_to_pod(api: FakeApi) -> None:
    """A version that moves on while lists are read is met in the next one."""
    ask = asker(api)
    ask.begin()
    del api.seen[:]
    ask()
    order = list(dict.fromkeys(request.path for request in api.seen))
    assert order == [EPDS, DEPLOYMENTS, REPLICASETS, PODS]
    assert all("resourceVersion" not in request.query for request in api.seen)


def test_a_claim_that_is_not_there(api: FakeApi) -> None:
    del api.objects[CLAIM]
    brief = asker(api).begin()
    assert brief.claim is None
    assert not brief.problem


@pytest.mark.parametrize("path", [EPDS, DEPLOYMENTS, REPLICASETS, PODS])
@pytest.mark.parametrize(
    "answer",
    [refusal(403, "forbidden"), refusal(404, "not served"), Answer(body=b"{"), Answer(status=503)],
)
def test_without_any_one_of_the_lists_nothing_is_known(api: FakeApi, path: str, answer: Answer) -> None:
    ask = asker(api)
    ask.begin()
    api.fault = lambda request: answer if request.path == path else None
    known = ask()
    assert (known.valid, known.live) == (False, {})
    assert path in known.message


def test_a_second_page_that_fails_spoils_the_answer(api: FakeApi) -> None:
    ask = asker(api)
    ask.begin()
    api.fault = lambda request: refusal(500, "etcd") if "continue" in request.query else None
    assert not ask().valid


def test_a_pass_without_a_policy_of_now_learns_of_no_version(api: FakeApi) -> None:
    ask = asker(api)
    first = ask.begin()
    api.fault = lambda _: refusal(503, "down")
    brief = ask.begin()
    assert (brief.claim, brief.in_force) == (first.claim, first.in_force)
    assert brief.problem.endswith("HTTP 503: down")
    api.fault = lambda _: None
    known = ask()
    assert (known.valid, known.message) == (False, brief.problem)
    ask.begin()
    assert ask().valid


def test_at_the_start_an_api_server_that_is_down_allows_nothing(api: FakeApi) -> None:
    api.fault = lambda _: refusal(503, "down")
    brief = asker(api).begin()
    assert (brief.claim, brief.in_force) == (None, InForce())


def test_a_policy_that_changes_during_the_pass_stops_it(api: FakeApi) -> None:
    ask = asker(api)
    ask.begin()
    api.collections[EPDS] = [raw_epd(collection={"dryRun": True})]
    assert ask().message == "garbageCollection was changed during the pass; the next one goes by it"
    ask.begin()
    assert ask().valid


def test_a_new_version_during_the_pass_does_not_stop_it(api: FakeApi) -> None:
    ask = asker(api)
    ask.begin()
    api.collections[EPDS] = [raw_epd(status={"modelVersion": "new"})]
    assert ask().valid


def test_an_empty_namespace_is_not_believed_at_once(api: FakeApi) -> None:
    clock = Clock()
    ask = asker(api, clock)
    api.collections |= {EPDS: [raw_epd(collection={"versionGracePeriod": "1m"})]}
    ask.begin()
    assert ask().valid
    for path in api.collections:
        api.collections[path] = []
    ask.begin()
    assert ask().message.startswith("nothing in the namespace names a version")


def test_a_version_that_moves_during_the_lists_is_not_lost(api: FakeApi) -> None:
    """It leaves the spec after that was listed, and its Deployment after this: it is met twice, never not at all."""
    ask = asker(api)
    ask.begin()

    def move(request: Request) -> None:
        if request.path == DEPLOYMENTS:
            api.collections[EPDS] = []
            api.collections[PODS] = [raw_pod("9", version=QWEN)]

    api.fault = move
    assert QWEN in ask().live
