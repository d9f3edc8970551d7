"""The Managed connector when the volume itself fails, and when an engine must read an entry twice.

One deployment on a volume that can be filled, made read-only and stopped (`fragile`); its prefill side has so little
memory that requests are preempted, and has no prefix cache.
"""

from __future__ import annotations

import copy
import json
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from cluster import Cluster, entries
from cluster.chat import Answer, ask, body, picture, post
from cluster.conftest import example
from cluster.deployed import Deployed, sample
from cluster.engine_requests import ask_without_pixels, counters, healthy, prime, without_pixels
from cluster.fragile import FragileVolume, fragile_volume

pytestmark = pytest.mark.node

NAME = "fragile"
FEW_BLOCKS = "20"
"""Of 128 tokens each: two of three requests of 1,200 tokens fit, so the third is preempted (seen with vLLM 0.32)."""
LONG_ANSWER = 1200
OWN_CACHE = "2048"
"""Embeddings in the engine's own cache; smaller than the largest item, a video of `maxModelLen`, it can't be."""
LARGE = 224
"""Pixels along a side of a picture of 64 embeddings, the most that the model takes."""


@dataclass(frozen=True)
class Fragile:
    """The deployment and its volume."""

    epd: Deployed
    volume: FragileVolume

    @property
    def encoder(self) -> str:
        """Base URL of the encoder."""
        return self.epd.engine("encode")

    @property
    def engine(self) -> str:
        """Base URL of the prefill side."""
        return self.epd.engine("prefill-decode")

    def restarts(self) -> list[int]:
        """Restarts of the engines' containers."""
        pods = [*self.epd.pods("encode"), *self.epd.pods("prefill-decode")]
        return [s["restartCount"] for pod in pods for s in pod["status"]["containerStatuses"]]

    def forget(self, uuid: str) -> None:
        """Delete an entry behind everybody's back."""
        version = self.epd.get()["status"]["modelVersion"]
        entries.path(self.volume.folder, version, uuid).unlink()


def manifest(claim: str) -> dict[str, Any]:
    """The demo on a claim of its own."""
    found = copy.deepcopy(example("01-cpu-demo.yaml"))
    found["metadata"]["name"] = NAME
    spec = found["spec"]
    spec["prefillDecode"]["args"] = [
        "--no-enable-prefix-caching",
        f"--num-gpu-blocks-override={FEW_BLOCKS}",
        f"--max-num-batched-tokens={OWN_CACHE}",
    ]
    spec["encoderCache"] = {
        "volume": {"persistentVolumeClaim": {"claimName": claim}},
        "extraConfig": {"probe_timeout_seconds": 2, "write_timeout_seconds": 2},
        "garbageCollection": {"enabled": False},
    }
    return found


@pytest.fixture(scope="module")
def fragile(cluster: Cluster, namespace: str) -> Iterator[Fragile]:
    """The deployment, Ready; its engines must never restart."""
    volume_name, claim = f"fragile-{secrets.token_hex(3)}", "fragile-cache"
    folder = cluster.make_volume(volume_name, claim=(namespace, claim))
    with fragile_volume(folder) as volume:
        cluster.bring_claim(namespace, claim)
        epd = Deployed(cluster.kubectl, namespace, NAME)
        epd.apply(manifest(claim))
        epd.wait_ready()
        found = Fragile(epd, volume)
        yield found
        epd.run("delete", "epd", NAME, "--cascade=foreground", "--timeout=180s")
        epd.run("delete", "pvc", claim, "--timeout=60s")
    cluster.delete_volume(volume_name)


@pytest.fixture(autouse=True)
def no_engine_restarts(fragile: Fragile) -> Iterator[None]:
    """What every test here is about."""
    before = fragile.restarts()
    yield
    assert fragile.restarts() == before
    assert healthy(fragile.encoder)
    assert healthy(fragile.engine)


def answers_although_nothing_can_be_written(fragile: Fragile, reason: str) -> None:
    """A new picture is answered, and the encoder claims nothing that is not on disk."""
    before = counters(fragile.encoder)
    answer = ask(fragile.epd.url(), [picture("green")])
    assert (answer.status, answer.text) == (200, "green")
    uuid = secrets.token_hex(32)
    assert prime(fragile.encoder, {uuid: picture("red")})[uuid] == {}
    after = counters(fragile.encoder)
    assert after[f"save_failures/{reason}"] >= before[f"save_failures/{reason}"] + 2


def is_well_again(fragile: Fragile) -> None:
    """A new picture goes through the store."""
    before = counters(fragile.engine)
    answer = ask(fragile.epd.url(), [picture("blue")])
    assert (answer.status, answer.text) == (200, "blue")
    assert counters(fragile.engine)["hits"] == before["hits"] + 1


def test_a_full_volume_stops_nothing(fragile: Fragile) -> None:
    uuid, url = secrets.token_hex(32), picture("white")
    metadata = prime(fragile.encoder, {uuid: url})[uuid]
    ballast = fragile.volume.fill()
    try:
        answers_although_nothing_can_be_written(fragile, "full")
        kept = ask_without_pixels(fragile.engine, uuid, metadata)
        assert (kept.status, kept.text) == (200, "white"), "what is there can be read"
    finally:
        ballast.unlink()
    is_well_again(fragile)


def test_a_read_only_mount_stops_nothing(fragile: Fragile) -> None:
    uuid, url = secrets.token_hex(32), picture("white")
    metadata = prime(fragile.encoder, {uuid: url})[uuid]
    fragile.volume.read_only(True)
    try:
        answers_although_nothing_can_be_written(fragile, "read_only")
        kept = ask_without_pixels(fragile.engine, uuid, metadata)
        assert (kept.status, kept.text) == (200, "white"), "what is there can be read"
    finally:
        fragile.volume.read_only(False)
    is_well_again(fragile)


def test_a_hung_file_server_costs_a_deadline_and_no_more(fragile: Fragile) -> None:
    uuid, url = secrets.token_hex(32), picture("orange")
    metadata = prime(fragile.encoder, {uuid: url})[uuid]
    before = counters(fragile.engine)
    with fragile.volume.hung():
        text = ask(fragile.epd.url(), [])
        assert text.status == 200
        refused = ask_without_pixels(fragile.engine, uuid, metadata)
        assert refused.status == 500
        assert healthy(fragile.engine)
        for colour in ("red", "green", "blue"):
            answer = ask(fragile.epd.url(), [picture(colour)])
            assert (answer.status, answer.text) == (200, colour)
        after = counters(fragile.engine)
        assert after["probe_timeouts"] > before["probe_timeouts"]
        assert after["hits"] == before["hits"]
    for _ in range(20):  # engines look at a store that hung at intervals of their own
        if ask_without_pixels(fragile.engine, uuid, metadata).status == 200:
            break
    is_well_again(fragile)


def test_a_preempted_request_without_pixels_ends_complete_though_its_entry_is_gone(fragile: Fragile) -> None:
    """Preemption throws away the KV cache; the pictures are needed again, and no file has them any more.

    Whether they are read a second time, or are still in the engine's own cache, is a matter of time here; tests/engine
    shows the second reading.
    """
    colours = ("red", "blue", "yellow")
    uuids = {secrets.token_hex(32): picture(colour) for colour in colours}
    told = prime(fragile.encoder, uuids)
    # 2,560 embeddings, more than its own cache holds; made beforehand, since they have to be there before a preemption.
    others = [body([picture("white", size=LARGE) for _ in range(4)], max_tokens=1) for _ in range(10)]
    before, preempted = counters(fragile.engine), preemptions(fragile.engine)
    streams = [
        Stream(fragile.engine, without_pixels(uuid, told[uuid], **long_answer(n))) for n, uuid in enumerate(uuids)
    ]
    for stream in streams:
        stream.begun.wait(timeout=60)
    for uuid in uuids:
        fragile.forget(uuid)
    assert {post(fragile.engine, request).status for request in others} == {200}
    assert [stream.end() for stream in streams] == [(LONG_ANSWER, True)] * 3
    assert preemptions(fragile.engine) > preempted, "nothing was preempted: the test shows nothing"
    after = counters(fragile.engine)
    assert after["unavailable_requests"] == before["unavailable_requests"]
    assert after["loads"] >= before["loads"] + 3


def long_answer(number: int) -> dict[str, Any]:
    """An answer of `LONG_ANSWER` tokens; the requests are told apart so that nothing is shared."""
    return {
        "question": "what colour is this" + " please" * number,
        "stream": True,
        "max_tokens": LONG_ANSWER,
        "min_tokens": LONG_ANSWER,
        "ignore_eos": True,
    }


def preemptions(engine: str) -> float:
    """vLLM's own count."""
    return sample(httpx.get(f"{engine}/metrics", timeout=10).text, "vllm:num_preemptions_total")


class Stream:
    """A streamed answer that is read in a thread of its own."""

    def __init__(self, engine: str, request: dict[str, Any]) -> None:
        self.begun = threading.Event()
        self._chunks, self._done = 0, False
        self._thread = threading.Thread(target=self._read, args=(f"{engine}/v1/chat/completions", request))
        self._thread.start()

    def _read(self, url: str, request: dict[str, Any]) -> None:
        request |= {"stream_options": {"include_usage": True}}
        with httpx.stream("POST", url, json=request, timeout=300) as response:
            for line in response.iter_lines():
                self.begun.set()
                if line == "data: [DONE]":
                    self._done = True
                elif line.startswith("data: ") and (usage := json.loads(line[6:]).get("usage")):
                    self._chunks = usage["completion_tokens"]

    def end(self) -> tuple[int, bool]:
        """Tokens, and whether the stream ended as it should."""
        self._thread.join(timeout=300)
        return self._chunks, self._done


def test_it_is_still_the_same_deployment(fragile: Fragile) -> None:
    answer: Answer = ask(fragile.epd.url(), [picture("purple")])
    assert (answer.status, answer.text) == (200, "purple")
