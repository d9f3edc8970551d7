"""Local memory for entries that runs out, and pins in its place."""

from __future__ import annotations

import time
from pathlib import Path

from engine.befalls import loads
from engine.core import LONG, item, publish
from engine.pretended import Script


def test_an_entry_above_the_budget_is_pinned(start, root):
    consumer = start("ec_consumer", extra={"local_bytes": 8192})
    entry = publish(root, consumer, "red", 32)
    answer = consumer.ask("c", item("red", 4, 32, pixels=False), output=8)
    consumer.run(until=lambda: len(answer.tokens) > 0)
    assert entry.stat().st_nlink == 2
    consumer.run()
    assert (answer.reason, consumer.script.loads) == ("length", ["red"])
    consumer.ask("d")  # pins go in steps
    consumer.run()
    consumer.until(lambda: entry.stat().st_nlink == 1)


def test_workers_on_other_nodes_get_pins(start, root, monkeypatch, delivered):
    from epd_connector import settings

    monkeypatch.setattr(settings, "remote_workers", lambda config: True)
    script = Script()
    consumer = start("ec_consumer", script=script)
    entry = publish(root, consumer, "red", 32)
    script.before[0] = lambda output: loads(output) and entry.unlink()
    answer = consumer.ask("c", item("red", 4, 32, pixels=False))
    consumer.run()
    assert (answer.reason, script.loads) == ("length", ["red"])


def test_a_full_budget_costs_pixels_an_encoding_and_the_rest_a_pin(start, root):
    script = Script(before={0: lambda output: time.sleep(0.005)})  # so that the first request outlives the deadlines
    consumer = start("ec_consumer", script=script, extra={"local_bytes": 16384, "probe_timeout_seconds": 0.2})
    for colour in ("red", "green", "blue"):
        publish(root, consumer, colour, 32)
    first = consumer.ask("1", item("red", 4, 32, pixels=False), output=400)
    consumer.run(until=lambda: len(first.tokens) > 0)
    pixels = consumer.ask("2", item("green", 4, 32))
    consumer.run(until=lambda: pixels.reason is not None)
    assert (consumer.script.encodes, consumer.counts["rejects"]) == (["green"], {"budget_full": 1})
    bare = consumer.ask("3", item("blue", 4, 32, pixels=False))
    consumer.run(until=lambda: bare.reason is not None)
    assert (bare.reason, consumer.counts["budget_full"]) == ("length", 2)
    consumer.core.abort_requests(["1"])
    consumer.run()


def test_a_killed_engines_copies_go_with_the_next_start(start, root):
    consumer = start("ec_consumer")
    directory = Path(consumer.connector._shared.copies._directory)
    assert directory.exists()
    consumer.connector.shutdown()
    consumer.connector.shutdown()
    assert not directory.exists()


def test_an_entry_that_shared_memory_has_no_room_for_is_pinned_at_once(start, root, monkeypatch, delivered):
    from epd_connector import shared_memory

    monkeypatch.setattr(shared_memory, "room", lambda: 12288)
    consumer = start("ec_consumer", extra={"probe_timeout_seconds": LONG})
    publish(root, consumer, "red", 32)
    answer = consumer.ask("c", item("red", 4, 32, pixels=False))
    consumer.run()
    assert (answer.reason, consumer.script.loads, "budget_full" in consumer.counts) == ("length", ["red"], False)
