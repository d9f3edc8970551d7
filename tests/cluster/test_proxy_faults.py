"""The worst that can happen behind the proxy and to it, with real vLLM: answers are right, or say what is wrong."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import Cluster, entries
from cluster.chat import Answer, ask, body, picture
from cluster.clients import load, wrong
from cluster.deployed import Deployed
from cluster.encoded import encode_only, entry
from cluster.outages import armed, hung, interrupted, signal_engine, without_control_plane

pytestmark = pytest.mark.node

AWAY_SECONDS = 61
"""Longer than a node is waited for (kube-controller-manager's grace period is 50 s)."""


@pytest.fixture(scope="module", autouse=True)
def _well_again(epd: Deployed) -> Iterator[None]:
    """Each test undoes what it did, but does not wait for engines to start."""
    yield
    epd.patch({"proxy": {"encoderFailurePolicy": None, "timeouts": {"encode": None, "idle": None}}})
    epd.wait_ready()


def eventually(epd: Deployed, happened: Callable[[], bool], *, seconds: float = 120) -> None:
    """Wait for what no condition tells."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, epd.explain()
        time.sleep(0.5)


def proxies(epd: Deployed) -> set[str]:
    """Names of the proxy's pods, those that are ending too."""
    selector = f"epd.dev/name={epd.name},app.kubernetes.io/component=proxy"
    return set(epd.run("get", "pods", "-l", selector, "-o", "name").split())


def roll_proxy(epd: Deployed, change: dict[str, Any]) -> None:
    """Change `spec.proxy` and wait until nothing of the proxy before is left."""
    before = proxies(epd)
    epd.patch({"proxy": change})
    eventually(epd, lambda: bool(now := proxies(epd)) and now.isdisjoint(before))


def long(*colours: str) -> dict[str, Any]:
    """A request for an answer of seconds."""
    return body([picture(colour) for colour in colours], max_tokens=1500, ignore_eos=True)


def said(answer: Answer) -> tuple[int, str]:
    """Status and code of a refusal."""
    return answer.status, str(json.loads(answer.text)["error"]["code"])


def test_a_rolling_update_of_the_proxy_fails_no_request(epd: Deployed) -> None:
    with load(epd.url()) as fresh, load(epd.url(), keep_alive=True) as kept:
        roll_proxy(epd, {"timeouts": {"encode": "5s", "idle": "5s"}})
        ended = len(fresh), len(kept)
        time.sleep(2)
    assert wrong(fresh) == []
    assert wrong(kept) == []
    assert all(now > before > 4 for now, before in zip((len(fresh), len(kept)), ended, strict=True))


def test_an_encoder_that_hangs_costs_its_timeout(epd: Deployed) -> None:
    before = epd.metric("epd_proxy_fallbacks_total", reason="timeout")
    with hung(epd, "encode"):
        answer = ask(epd.url(), [picture("purple")])
    assert (answer.status, answer.text, answer.headers["x-epd-encode"]) == (200, "purple", "fallback")
    assert epd.metric("epd_proxy_fallbacks_total", reason="timeout") == before + 1
    again = ask(epd.url(), [picture("orange")])
    assert (again.status, again.text, again.headers["x-epd-encode"]) == (200, "orange", "encoded")


def test_an_engine_that_hangs_in_a_stream_breaks_it_off(cluster: Cluster, epd: Deployed) -> None:
    with armed(cluster, epd, "prefill-decode", signal.SIGSTOP) as stop:
        streamed = interrupted(epd.url(), long("red"), stop)
    signal_engine(epd, "prefill-decode", signal.SIGCONT)
    assert streamed.text.startswith("red")
    assert not streamed.complete
    again = ask(epd.url(), [picture("blue")])
    assert (again.status, again.text) == (200, "blue")


@pytest.mark.parametrize(("stream", "cause"), [(False, "status"), (True, "stream-error")], ids=["whole", "streamed"])
def test_an_engine_that_fails_without_the_media_gets_them(epd: Deployed, store: Path, stream: bool, cause: str) -> None:
    """The encoder still holds the item, so it does not write its entry anew; vLLM fails inside its stream."""
    url = picture("white")
    entries.DAMAGE["flipped bit"][0](entry(store, epd, encode_only(epd, url)))
    before = epd.metric("epd_proxy_resends_total", cause=cause)
    answer = ask(epd.url(), [url], stream=stream)
    assert (answer.status, answer.text, answer.headers["x-epd-encode"]) == (200, "white", "fallback")
    assert epd.metric("epd_proxy_resends_total", cause=cause) == before + 1


def test_a_control_plane_that_is_away_is_not_missed(cluster: Cluster, epd: Deployed) -> None:
    if cluster.provider != "native":
        pytest.skip("the control plane of this cluster is not ours to stop")
    url = epd.url()
    with load(url) as got, without_control_plane():
        time.sleep(AWAY_SECONDS)
        during = list(got)
    assert wrong(during) == []
    assert {a.headers["x-epd-encode"] for _, a in during} == {"encoded"}
    assert len(during) > AWAY_SECONDS / 2
    epd.wait_ready()
    assert ask(url, [picture("red")]).text == "red"


def test_encoders_that_are_gone_are_a_matter_of_policy(epd: Deployed) -> None:
    url = epd.url()
    epd.patch({"encode": {"replicas": 0}})
    eventually(epd, lambda: not epd.metric("epd_proxy_members", role="encode", ready="true"))
    answer = ask(url, [picture("green")])
    assert (answer.status, answer.text, answer.headers["x-epd-encode"]) == (200, "green", "fallback")
    roll_proxy(epd, {"encoderFailurePolicy": "Fail"})
    assert said(ask(url, [picture("green")])) == (503, "encoder_unavailable")
    assert ask(url, []).status == 200
    epd.patch({"encode": {"replicas": 1}})


def test_an_engine_that_is_killed_in_a_stream_is_missed_until_it_is_back(cluster: Cluster, epd: Deployed) -> None:
    url = epd.url()
    with armed(cluster, epd, "prefill-decode", signal.SIGKILL) as kill:
        streamed = interrupted(url, long(), kill)
    assert streamed.text
    assert not streamed.complete
    refusals: list[tuple[int, str]] = []

    def missed() -> bool:
        refusals.append(said(ask(url, [])))
        return refusals[-1] == (503, "no_ready_engine")

    eventually(epd, missed)
    assert {status for status, _ in refusals} <= {500, 503}
    # both roles have to start
    eventually(epd, lambda: ask(url, [picture("red")]).headers.get("x-epd-encode") == "encoded", seconds=420)
    again = ask(url, [picture("black")], stream=True)
    assert (again.status, again.text, again.headers["x-epd-encode"]) == (200, "black", "encoded")
