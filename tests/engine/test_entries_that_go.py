"""Entries are deleted, and requests aborted or preempted, between the verdict on an item and its load."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from engine.befalls import empty, loads, text, truncate
from engine.core import VERSION, item, publish
from engine.pretended import Script


def test_an_entry_deleted_between_verdict_and_load_is_still_loaded(start, root):
    script = Script()
    consumer = start("ec_consumer", script=script)
    entry = publish(root, consumer, "red", 32)
    script.before[0] = lambda output: loads(output) and entry.unlink()
    answer = consumer.ask("c", item("red", 4, 32, pixels=False))
    consumer.run()
    assert (answer.reason, script.loads, entry.exists()) == ("length", ["red"], False)
    consumer.settle()


@pytest.mark.parametrize("pixels", [True, False])
def test_an_abort_that_overtakes_a_load_takes_nothing_from_it(start, root, pixels):
    script = Script()
    consumer = start("ec_consumer", script=script)
    entry = publish(root, consumer, "red", 32)
    held = []

    def abort(output: Any) -> None:
        if output.num_scheduled_tokens and not held:
            entry.unlink()
            consumer.core.abort_requests(["c"])  # as an abort that is handled while the model runs
            time.sleep(0.01)  # for whoever would release the copy now
            held.append(consumer.side.held)

    script.before[0] = abort
    consumer.ask("c", item("red", 4, 32, pixels=pixels))
    consumer.run()
    other = consumer.ask("d", item("red", 8, 32))
    consumer.run()
    assert (held, other.reason, script.encodes) == ([1], "length", [])
    assert "load_failures" not in consumer.counts
    consumer.settle()


def test_two_ranks_read_at_their_own_time_under_asynchronous_scheduling(start, root):
    gate = threading.Event()
    script = Script(ranks=2, gates={1: gate})
    consumer = start("ec_consumer", script=script, asynchronous=True)
    entry = publish(root, consumer, "red", 32)
    ran: list[str] = []
    script.before[0] = lambda output: ran.extend(loads(output))
    consumer.ask("c", item("red", 4, 32))
    flying = consumer.core.batch_queue
    consumer.run(until=lambda: any(loads(output) for _, output, _ in flying))
    consumer.until(lambda: ran == ["red"])
    # The first rank reads, the second has not begun; now the request goes, and so does the entry.
    entry.unlink()
    consumer.core.abort_requests(["c"])
    assert consumer.side.held == 1
    gate.set()
    consumer.run()
    other = consumer.ask("d", item("red", 8, 32))
    consumer.run()
    assert (other.reason, script.encodes) == ("length", [])
    assert "load_failures" not in consumer.counts
    consumer.settle()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_preempted_request_without_pixels_ends_complete_after_its_entry_was_deleted(start, root, asynchronous):
    consumer = start("ec_consumer", asynchronous=asynchronous)
    entry = publish(root, consumer, "red", 32)
    answer = consumer.ask("c", item("red", 4, 32, pixels=False), output=40)
    consumer.run(until=lambda: len(answer.tokens) > 0)
    entry.unlink()
    assert consumer.core.reset_prefix_cache(reset_running_requests=True)  # preempts, as a lack of blocks does
    assert consumer.core.scheduler.requests["c"].num_preemptions == 1
    consumer.core.reset_encoder_cache()
    consumer.run()
    assert (answer.reason, len(answer.tokens)) == ("length", 40)
    assert consumer.script.loads == ["red", "red"]
    consumer.settle()


def test_a_request_preempted_for_lack_of_blocks_ends_complete_after_its_entry_was_deleted(start, root):
    consumer = start("ec_consumer", script=Script(blocks=9), length=112, tokens=112)  # 8 blocks of 16 tokens are vLLM's
    entry = publish(root, consumer, "red", 32)
    hog = consumer.ask("hog", tokens=40, output=60)
    bare = [consumer.ask(name, item("red", 4, 32, pixels=False), tokens=40, output=60) for name in ("a", "b")]
    consumer.run(until=lambda: all(answer.tokens for answer in bare) or any(answer.reason for answer in bare))
    entry.unlink()
    preempted = set[str]()

    def done() -> bool:
        requests = consumer.core.scheduler.requests
        preempted.update(name for name in ("a", "b") if name in requests and requests[name].num_preemptions)
        return not requests

    consumer.run(until=done)
    assert [len(answer.tokens) for answer in (hog, *bare)] == [60, 60, 60]
    assert preempted
    consumer.settle()


def test_a_copy_that_a_worker_cannot_read_fails_its_requests_only(start, root):
    script = Script()
    consumer = start("ec_consumer", script=script)
    publish(root, consumer, "red", 32)
    directory = Path(consumer.connector._shared.copies._directory)

    def lose(output: Any) -> None:
        for load in output.ec_connector_metadata.step.loads:
            Path(load.path).unlink(missing_ok=True)

    script.before[0] = lose
    lost = consumer.ask("c", item("red", 4, 32), output=20)
    other = consumer.ask("d", output=20)
    consumer.run()
    assert (lost.reason, other.reason) == ("error", "length")
    assert consumer.counts["load_failures"] == 1
    consumer.may_be_wrong = list(script.wrong)
    script.before.clear()
    again = consumer.ask("e", item("red", 8, 32))  # the zeros are still in the local cache
    consumer.run()
    assert (again.reason, script.wrong) == ("length", consumer.may_be_wrong)
    assert directory.exists()
    consumer.settle()


def test_an_encoder_writes_again_what_was_deleted_while_it_holds_it(start, root):
    encoder = start("ec_producer")
    encoder.ask("1", item("red", 4, 32))
    encoder.run()
    shutil.rmtree(root / VERSION)
    answer = encoder.ask("2", item("red", 8, 32))
    encoder.run()
    assert answer.items == {"red": {"item_indices": [0], "metadata": {"image_grid_thw": [1, 2, 64]}}}
    assert (encoder.script.encodes, encoder.counts["republished"]) == (["red"], 1)
    consumer = start("ec_consumer")
    served = consumer.ask("c", item("red", 4, 32, pixels=False))
    consumer.run()
    assert served.reason == "length"


def test_an_encoder_has_no_phantom_entries(start, root):
    encoder = start("ec_producer")
    publish(root, encoder, "red", 32)
    encoder.ask("1", item("red", 4, 32))
    encoder.run()
    assert encoder.script.encodes == ["red"]
    assert encoder.counts["saves"] == 1
    assert encoder.counts.get("saved_bytes", 0) == 0  # the good entry stays


@pytest.mark.parametrize("damage", [truncate, empty, text])
def test_an_encoder_writes_again_what_a_lost_server_left_torn_while_it_holds_it(start, root, damage):
    encoder = start("ec_producer")
    encoder.ask("1", item("red", 4, 32))
    encoder.run()
    entry = next((root / VERSION).glob("*/*.safetensors"))
    whole = entry.read_bytes()
    damage(entry)
    answer = encoder.ask("2", item("red", 8, 32))
    encoder.run()
    assert answer.items == {"red": {"item_indices": [0], "metadata": {"image_grid_thw": [1, 2, 64]}}}
    assert (encoder.script.encodes, entry.read_bytes()) == (["red"], whole)
