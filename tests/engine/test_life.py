"""Requests from admission to answer: where their embeddings came from, and what was counted."""

from __future__ import annotations

import os

import pytest

from engine.core import VERSION, item, publish
from engine.pretended import Script

RUNNERS = pytest.mark.parametrize("runner", ["V1", "V2"])


@RUNNERS
def test_a_consumer_gets_what_an_encoder_published(start, runner):
    encoder = start("ec_producer", script=Script(runner=runner))
    consumer = start("ec_consumer", script=Script(runner=runner))
    encoded = encoder.ask("e", item("red", 4, 32))
    encoder.run()
    assert encoded.items == {"red": {"item_indices": [0], "metadata": {"image_grid_thw": [1, 2, 64]}}}
    answer = consumer.ask("c", item("red", 4, 32))
    consumer.run()
    assert (answer.reason, len(answer.tokens)) == ("length", 4)
    assert (consumer.script.loads, consumer.script.encodes) == (["red"], [])
    assert consumer.counts["hits"] == 1
    assert consumer.counts["loaded_bytes"] == 32 * 256 * 2
    assert "local_encodes" not in consumer.counts
    assert (encoder.counts["saves"], encoder.counts["saved_bytes"]) == (1, 32 * 256 * 2)
    consumer.settle()


@RUNNERS
def test_a_miss_with_pixels_is_encoded_here_and_counted(start, runner):
    consumer = start("ec_consumer", script=Script(runner=runner))
    answer = consumer.ask("c", item("red", 4, 32))
    consumer.run()
    assert (answer.reason, consumer.script.encodes) == ("length", ["red"])
    assert {name: consumer.counts.get(name) for name in ("hits", "misses", "local_encodes", "rejects")} == {
        "hits": None,
        "misses": 1,
        "local_encodes": 1,
        "rejects": None,
    }


def test_an_item_without_pixels_is_served_from_its_entry_and_held_to_the_end(start, root):
    consumer = start("ec_consumer")
    publish(root, consumer, "red", 32)
    answer = consumer.ask("c", item("red", 4, 32, pixels=False), output=8)
    consumer.run(until=lambda: len(answer.tokens) >= 4)
    assert consumer.side.held == 1
    consumer.run()
    assert (answer.reason, len(answer.tokens), consumer.script.loads) == ("length", 8, ["red"])
    consumer.settle()


def test_a_request_without_pixels_and_without_entry_fails_alone(start, root):
    consumer = start("ec_consumer")
    publish(root, consumer, "blue", 32)
    lost = consumer.ask("lost", item("red", 4, 32, pixels=False))
    other = consumer.ask("other", item("blue", 4, 32, pixels=False))
    consumer.run()
    assert (lost.reason, lost.tokens) == ("error", [])
    assert (other.reason, len(other.tokens)) == ("length", 4)
    assert consumer.counts["unavailable_requests"] == 1
    consumer.settle()


def test_a_verdict_of_miss_does_not_outlive_the_request(start, root):
    consumer = start("ec_consumer")
    first = consumer.ask("1", item("red", 4, 32, pixels=False))
    consumer.run()
    publish(root, consumer, "red", 32)
    second = consumer.ask("2", item("red", 4, 32, pixels=False))
    consumer.run()
    assert (first.reason, second.reason) == ("error", "length")


def test_several_and_repeated_items_are_loaded_once(start, root):
    consumer = start("ec_consumer")
    publish(root, consumer, "red", 16)
    publish(root, consumer, "blue", 16)
    answer = consumer.ask("c", item("red", 2, 16), item("blue", 20, 16), item("red", 40, 16))
    bare = consumer.ask("d", item("red", 2, 16, pixels=False), item("red", 40, 16, pixels=False))
    consumer.run()
    assert (answer.reason, bare.reason, consumer.script.encodes) == ("length", "length", [])
    assert set(consumer.script.loads) == {"red", "blue"}
    consumer.settle()


def test_the_same_identifier_with_another_size_is_a_miss(start, root):
    consumer = start("ec_consumer")
    publish(root, consumer, "red", 32)
    bare = consumer.ask("b", item("red", 4, 16, pixels=False))
    consumer.run()
    answer = consumer.ask("c", item("red", 4, 16))
    consumer.run()
    assert (bare.reason, answer.reason, consumer.script.encodes) == ("error", "length", ["red"])
    assert consumer.counts["rejects"] == {"rows": 2}


@pytest.mark.parametrize("identifier", ["adapter:red", "../../red", "/abs/red", "r/e/d", "röd\ud800", "x" * 5000])
def test_identifiers_are_names_of_nothing(start, root, identifier):
    encoder, consumer = start("ec_producer"), start("ec_consumer")
    encoder.ask("e", item(identifier, 4, 32))
    encoder.run()
    answer = consumer.ask("c", item(identifier, 4, 32, pixels=False))
    consumer.run()
    assert (answer.reason, consumer.script.loads) == ("length", [identifier])
    assert sorted(os.listdir(root)) == [".epd-gc", VERSION]
    assert os.listdir(root.parent) == [root.name]


def test_prompts_longer_than_a_step_load_each_item_in_its_chunk(start, root):
    consumer = start("ec_consumer", tokens=64)
    publish(root, consumer, "red", 32)
    publish(root, consumer, "blue", 32)
    answer = consumer.ask("c", item("red", 4, 32), item("blue", 150, 32, pixels=False), tokens=200)
    consumer.run()
    assert (answer.reason, consumer.script.encodes) == ("length", [])
    consumer.settle()


@RUNNERS
def test_one_engine_in_both_roles_publishes_and_reads(start, root, runner):
    first = start("ec_both", script=Script(runner=runner))
    second = start("ec_both", script=Script(runner=runner))
    first.ask("a", item("red", 4, 32))
    first.run()
    answer = second.ask("b", item("red", 4, 32, pixels=False))
    second.run()
    assert (answer.reason, second.script.encodes, second.script.loads) == ("length", [], ["red"])
    assert answer.items is None  # an engine that encodes for itself has nobody to tell, and must not wait to know
    assert first.counts["saves"] == 1
    assert "saves" not in second.counts  # what was loaded is not saved again


def test_prefix_cache_hits_stamp_the_entry_but_do_not_load_it(start, root):
    consumer = start("ec_consumer", prefix_caching=True, extra={"min_idle_seconds": 0.004})
    entry = publish(root, consumer, "red", 32)
    consumer.ask("1", item("red", 4, 32), tokens=96)
    consumer.run()
    os.utime(entry, (1, 1))
    consumer.ask("2", item("red", 4, 32), tokens=96)
    consumer.run()
    consumer.until(lambda: entry.stat().st_mtime > 1)
    assert consumer.counts["hits"] == 1


def test_local_hits_stamp_the_entry(start, root):
    consumer = start("ec_consumer", extra={"min_idle_seconds": 0.004})
    entry = publish(root, consumer, "red", 32)
    consumer.ask("1", item("red", 4, 32))
    consumer.run()
    os.utime(entry, (1, 1))
    consumer.ask("2", item("red", 8, 32))
    consumer.run()
    consumer.until(lambda: entry.stat().st_mtime > 1)
    assert consumer.counts["hits"] == 1


def test_the_first_engine_makes_record_directory_and_widths(start, root):
    encoder = start("ec_producer")
    encoder.ask("e", item("red", 4, 32))
    encoder.run()
    encoder.until(lambda: (root / ".epd-gc" / "versions" / f"{VERSION}.widths.json").exists())
    record = (root / ".epd-gc" / "versions" / f"{VERSION}.json").read_text()
    assert '"claim": "default/cache"' in record
    assert (root / ".epd-gc" / "versions" / f"{VERSION}.widths.json").read_text() == '{"image": 256, "video": 256}\n'
