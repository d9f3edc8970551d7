"""A store that hangs, is full or cannot be written: a miss or one clean error, and the engine goes on."""

from __future__ import annotations

import errno
import threading

import pytest

from engine.befalls import directory, truncate
from engine.core import item, publish


def test_the_engines_threads_never_touch_the_store(start, files):
    encoder, consumer = start("ec_producer"), start("ec_consumer")
    for engine in (encoder, consumer):
        engine.ask("a", item("red", 4, 32))
        engine.run()
        engine.ask("b", item("red", 8, 32))
        engine.run()
    assert files.threads
    assert all(name.startswith("epd-ec-") for name in files.threads)


def test_a_hung_store_is_a_miss_after_the_deadline_then_at_once_until_it_is_back(start, root, files):
    consumer = start("ec_consumer", extra={"probe_timeout_seconds": 0.2})
    publish(root, consumer, "red", 32)
    consumer.until(lambda: consumer.side._upkeep._task is None or consumer.side._upkeep._task.done)
    files.hang = True
    first = consumer.ask("1", item("red", 4, 32))
    consumer.run()
    assert (first.reason, consumer.script.encodes) == ("length", ["red"])
    assert consumer.counts["rejects"] == {"timeout": 1}
    assert consumer.counts["probe_timeouts"] == 1
    bare = consumer.ask("2", item("blue", 4, 32, pixels=False))
    pixels = consumer.ask("3", item("green", 4, 32))
    consumer.run()
    assert (bare.reason, pixels.reason) == ("error", "length")
    assert consumer.counts["rejects"] == {"timeout": 1, "suspect": 2}
    files.hang = False
    publish(root, consumer, "blue", 32)
    files.open_again.set()
    consumer.until(lambda: not consumer.connector._access.health.suspect)
    after = consumer.ask("4", item("blue", 4, 32, pixels=False))
    consumer.run()
    assert after.reason == "length"
    consumer.settle()


def test_many_requests_on_a_hung_store_take_no_more_threads_than_the_pool(start, root, files):
    consumer = start("ec_consumer", extra={"probe_timeout_seconds": 0.2, "io_threads": 2})
    files.hang = True
    answers = [consumer.ask(f"r{n}", item(f"i{n}", 4, 32)) for n in range(20)]
    consumer.run()
    assert {answer.reason for answer in answers} == {"length"}
    assert sum(thread.name.startswith("epd-ec-lookup") for thread in threading.enumerate()) == 2


def test_an_encoder_on_a_hung_store_answers_and_promises_nothing(start, files):
    encoder = start("ec_producer", extra={"probe_timeout_seconds": 0.2, "write_timeout_seconds": 0.2})
    files.hang = True
    answers = [encoder.ask(f"e{n}", item(f"i{n}", 4, 32)) for n in range(3)]
    encoder.run()
    assert [answer.items for answer in answers] == [{f"i{n}": {"item_indices": [0], "metadata": {}}} for n in range(3)]
    assert sum(encoder.counts["save_failures"].values()) == 3


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, "full"),
        (errno.EDQUOT, "full"),
        (errno.EROFS, "read_only"),
        (errno.EACCES, "unreadable"),
        (errno.ESTALE, "stale"),
        (errno.EIO, "io"),
    ],
)
@pytest.mark.parametrize("call", ["open", "pwrite", "rename"])
def test_an_encoder_that_cannot_write_answers_and_promises_nothing(start, files, number, reason, call):
    encoder = start("ec_producer")
    files.error = {call: number}
    answer = encoder.ask("e", item("red", 4, 32))
    encoder.run()
    assert answer.items == {"red": {"item_indices": [0], "metadata": {}}}
    assert encoder.counts["save_failures"] == {reason: 1}
    assert "saves" not in encoder.counts


@pytest.mark.parametrize("damage", [truncate, directory])
def test_an_encoder_does_not_take_what_it_cannot_replace_for_its_entry(start, root, files, damage):
    encoder = start("ec_producer")
    damage(publish(root, encoder, "red", 32))
    files.error = {"pwrite": errno.ENOSPC}
    answer = encoder.ask("e", item("red", 4, 32))
    encoder.run()
    assert answer.items == {"red": {"item_indices": [0], "metadata": {}}}
