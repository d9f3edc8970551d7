"""The Managed connector when the volume itself fails, and when an engine must read an entry twice.

One deployment on a volume that can be filled, made read-only and stopped (`fragile`); its prefill side has so little
memory that requests are preempted, and has no prefix cache.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from cluster import Cluster, entries
from cluster.chat import Answer, ask, picture
from cluster.engine_requests import ask_without_pixels, counters, healthy, prime
from cluster.fragile import Fragile, fragile_deployment
from cluster.preemption import LONG_ANSWER, Ended, Preempted, preempt, preemptions

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def fragile(cluster: Cluster, namespace: str) -> Iterator[Fragile]:
    """The deployment, Ready; its engines must never restart."""
    with fragile_deployment(cluster, namespace) as found:
        yield found


def forget(fragile: Fragile, uuid: str) -> None:
    """Delete an entry behind everybody's back."""
    version = fragile.epd.get()["status"]["modelVersion"]
    entries.path(fragile.volume.folder, version, uuid).unlink()


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
    with fragile.volume.full():
        answers_although_nothing_can_be_written(fragile, "full")
        kept = ask_without_pixels(fragile.engine, uuid, metadata)
        assert (kept.status, kept.text) == (200, "white"), "what is there can be read"
    is_well_again(fragile)


def test_a_read_only_mount_stops_nothing(fragile: Fragile) -> None:
    uuid, url = secrets.token_hex(32), picture("white")
    metadata = prime(fragile.encoder, {uuid: url})[uuid]
    with fragile.volume.read_only():
        answers_although_nothing_can_be_written(fragile, "read_only")
        kept = ask_without_pixels(fragile.engine, uuid, metadata)
        assert (kept.status, kept.text) == (200, "white"), "what is there can be read"
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
    told = prime(fragile.encoder, {secrets.token_hex(32): picture(colour) for colour in ("red", "blue", "yellow")})
    before, count = counters(fragile.engine), preemptions(fragile.engine)
    preempted = preempt(fragile.engine, told, lambda uuid: forget(fragile, uuid))
    assert preempted == Preempted([Ended(LONG_ANSWER, complete=True)] * 3, {200})
    assert preemptions(fragile.engine) > count, "nothing was preempted: the test shows nothing"
    after = counters(fragile.engine)
    assert after["unavailable_requests"] == before["unavailable_requests"]
    assert after["loads"] >= before["loads"] + 3


def test_it_is_still_the_same_deployment(fragile: Fragile) -> None:
    answer: Answer = ask(fragile.epd.url(), [picture("purple")])
    assert (answer.status, answer.text) == (200, "purple")
