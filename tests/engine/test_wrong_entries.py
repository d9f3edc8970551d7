"""Entries that are damaged, of another shape or of another version: a miss or one clean error, and life goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.befalls import DAMAGE
from engine.core import VERSION, item, publish
from engine.pretended import Script

WRONG = [({"width": 128}, "width"), ({"dtype": torch.float32}, "dtype")]


def served_without(consumer: Any, reason: str | None) -> None:
    """Ask for `red` with and without pixels, then for something else: a miss, an error, and life goes on."""
    bare = consumer.ask("bare", item("red", 4, 32, pixels=False))
    consumer.run()
    answer = consumer.ask("pixels", item("red", 4, 32))
    consumer.run()
    after = consumer.ask("after", item("blue", 4, 32))
    consumer.run()
    assert (bare.reason, answer.reason, after.reason) == ("error", "length", "length")
    assert (consumer.script.encodes, consumer.script.loads) == (["red", "blue"], [])
    assert consumer.counts.get("rejects") == ({reason: 2} if reason else None)
    assert consumer.counts["local_encodes"] == 2
    consumer.settle()


@pytest.mark.parametrize(("damage", "reason"), DAMAGE)
def test_a_damaged_entry_is_a_miss(start, root, damage: Callable[[Path], None], reason: str | None):
    consumer = start("ec_consumer")
    damage(publish(root, consumer, "red", 32))
    served_without(consumer, reason)


@pytest.mark.parametrize(("other", "reason"), WRONG)
def test_an_entry_of_another_shape_is_a_miss(start, root, other: dict[str, Any], reason: str):
    consumer = start("ec_consumer")
    publish(root, consumer, "red", 32, **other)
    served_without(consumer, reason)


def test_an_entry_of_another_version_is_a_miss(start, root):
    consumer = start("ec_consumer")
    foreign = publish(root, consumer, "red", 32, version="v1-tiny-ffffffffffff")
    shutil.copytree(foreign.parent, root / VERSION / foreign.parent.name)
    served_without(consumer, "version")


def test_the_width_that_encoders_measured_counts_more_than_the_configuration(start, root):
    encoder = start("ec_producer", script=Script(width=768))
    encoder.ask("e", item("red", 4, 32))
    encoder.run()
    encoder.until(lambda: (root / ".epd-gc" / "versions" / f"{VERSION}.widths.json").exists())
    consumer = start("ec_consumer", script=Script(width=768))
    answer = consumer.ask("c", item("red", 4, 32, pixels=False))
    consumer.run()
    assert (answer.reason, consumer.script.loads) == ("length", ["red"])


def test_two_sizes_under_one_identifier_are_an_error_also_when_the_first_left_the_local_cache(start, root):
    consumer = start("ec_consumer", tokens=64, length=256)
    publish(root, consumer, "red", 32)
    publish(root, consumer, "blue", 50)
    consumer.core.scheduler.encoder_cache_manager.__init__(64)
    items = item("red", 4, 32, pixels=False), item("blue", 70, 50, pixels=False), item("red", 150, 16, pixels=False)
    answer = consumer.ask("c", *items, tokens=200)
    other = consumer.ask("d", item("blue", 4, 50, pixels=False))
    consumer.run()
    assert (answer.reason, other.reason) == ("error", "length")


def test_an_embedding_of_another_dtype_than_consumers_expect_is_not_promised(start, root, monkeypatch):
    from engine import pretended

    encoder = start("ec_producer")
    monkeypatch.setattr(pretended.Worker, "_embedding", lambda worker, feature: torch.zeros(32, 256))
    answer = encoder.ask("e", item("red", 4, 32))
    encoder.run()
    assert answer.items == {"red": {"item_indices": [0], "metadata": {}}}
    assert encoder.counts["save_failures"] == {"dtype": 1}


def test_a_tensor_of_another_size_that_vllm_kept_is_replaced(start, root):
    consumer = start("ec_consumer")
    publish(root, consumer, "red", 32)
    worker = consumer.core.model_executor.ranks[0]
    worker.cache["red"] = torch.zeros(16, 256)  # its place was given to the other size within one step
    answer = consumer.ask("c", item("red", 4, 32, pixels=False))
    consumer.run()
    assert (answer.reason, consumer.script.loads) == ("length", ["red"])
