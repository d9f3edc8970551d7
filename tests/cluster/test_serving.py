"""E|PD with real vLLM: the right answers, and proof that they came through the encoder cache."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from cluster import entries
from cluster.chat import QUESTIONS, Answer, ask, body, picture, post
from cluster.deployed import Deployed, sample
from cluster.encoded import encode_only, entry, identifier

pytestmark = pytest.mark.node


def encoder_requests(epd: Deployed) -> float:
    """Requests that the encoders themselves counted."""
    return sum(
        sample(httpx.get(f"{epd.engine('encode', i)}/metrics", timeout=10).text, "vllm:request_success_total")
        for i in range(len(epd.pods("encode")))
    )


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("colours", [("red",), ("blue", "yellow"), ("green", "purple", "white")], ids=len)
def test_names_the_colours_in_order(epd: Deployed, colours: tuple[str, ...], stream: bool) -> None:
    answer = ask(epd.url(), [picture(c) for c in colours], stream=stream)
    assert (answer.status, answer.text) == (200, " and ".join(colours))
    assert answer.headers["x-epd-encode"] == "encoded"
    assert len(answer.items) == len(colours)
    assert set(answer.encoders) <= {pod["metadata"]["name"] for pod in epd.pods("encode")}
    assert answer.prefill in {pod["metadata"]["name"] for pod in epd.pods("prefill-decode")}


def test_text_alone_touches_no_encoder(epd: Deployed) -> None:
    before = encoder_requests(epd)
    answer = ask(epd.url(), [])
    assert answer.status == 200
    assert answer.encoders == ()
    assert answer.headers["x-epd-encode"] == "none"
    assert encoder_requests(epd) == before
    ask(epd.url(), [picture("red")])
    assert encoder_requests(epd) > before, (
        "the encoders' own counter must move for a picture, or the line above shows nothing"
    )


def test_the_entry_lies_on_the_claim_under_its_model_version(epd: Deployed, store: Path) -> None:
    url = picture("orange")
    answer = ask(epd.url(), [url])
    assert answer.items == (identifier(url),)
    assert answer.model_version == epd.get()["status"]["modelVersion"]
    assert entry(store, epd, answer.items[0]).stat().st_size > 0


def test_the_store_is_what_the_prefill_side_reads(epd: Deployed, store: Path) -> None:
    """An entry is exchanged for another colour's: an engine that encoded by itself would still see the picture."""
    for shown, stored, question in (("red", "blue", QUESTIONS[1]), ("white", "green", QUESTIONS[2])):
        url = picture(shown)
        key, other = encode_only(epd, url), encode_only(epd, picture(stored))
        entries.exchange(entry(store, epd, key), entry(store, epd, other))
        answer = ask(epd.url(), [url], question=question)
        assert answer.items == (key,)
        assert answer.text == stored


def test_the_encoder_killed_still_gives_the_right_answer(epd: Deployed) -> None:
    url = epd.url()
    before = epd.metric("epd_proxy_fallbacks_total")
    epd.run("delete", "pod", "-l", f"epd.dev/name={epd.name},llm-d.ai/role=encode", "--grace-period=0", "--force")
    answers: list[Answer] = []
    while len(answers) < 5:
        answers.append(ask(url, [picture("purple")]))
    assert [(a.status, a.text) for a in answers] == [(200, "purple")] * 5
    assert answers[0].headers["x-epd-encode"] == "fallback"
    assert epd.metric("epd_proxy_fallbacks_total") > before
    assert epd.condition("Available")["status"] == "True"
    epd.wait_ready()
    again = ask(url, [picture("yellow")])
    assert (again.text, again.headers["x-epd-encode"]) == ("yellow", "encoded")


def test_a_second_prefill_pod_reads_what_the_first_ones_encoder_wrote(epd: Deployed, store: Path) -> None:
    epd.patch({"prefillDecode": {"replicas": 2}})
    try:
        epd.run(
            "wait", "--for=jsonpath={.status.readyReplicas}=2", f"deployment/{epd.name}-prefilldecode", "--timeout=300s"
        )
        url = picture("black")
        first = post(epd.engine("prefill-decode", 0), keyed(url))
        key, other = encode_only(epd, url), encode_only(epd, picture("orange"))
        assert first.text == "black"
        entries.exchange(entry(store, epd, key), entry(store, epd, other))
        second = post(epd.engine("prefill-decode", 1), keyed(url))
        assert second.text == "orange", "the second pod saw the picture, not the entry"
    finally:
        epd.patch({"prefillDecode": {"replicas": 1}})
        epd.wait_ready()


def keyed(url: str) -> dict[str, object]:
    """The request as the proxy sends it to the prefill side."""
    request = body([url], question=QUESTIONS[3])
    request["messages"][0]["content"][1]["uuid"] = identifier(url)
    return request
