"""Mistakes of ours: whatever raises in the connector, the engine goes on."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core import item


def broken(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError


SCHEDULERS = [
    ("ensure", "ensure_cache_available"),
    ("has", "has_cache_item"),
    ("allocated", "update_state_after_alloc"),
    ("plan", "build_connector_meta"),
    ("account", "take_unavailable_requests"),
    ("finished", "request_finished"),
    ("stats", "get_ec_connector_stats"),
]


@pytest.mark.parametrize(("method", "hook"), SCHEDULERS)
def test_a_mistake_of_ours_in_the_scheduler_does_not_end_the_engine(start, monkeypatch, method, hook):
    consumer = start("ec_consumer")
    consumer.may_raise = {hook}
    with monkeypatch.context() as patch:
        patch.setattr(consumer.side, method, broken)
        answer = consumer.ask("1", item("red", 4, 32))
        consumer.run()
    assert answer.reason == ("error" if method == "ensure" else "length")
    after = consumer.ask("2", item("blue", 4, 32))
    consumer.run()
    assert after.reason == "length"
    assert consumer.counts["errors"].keys() == {hook}


@pytest.mark.parametrize(
    ("method", "hook"),
    [("republish", "start_save_caches"), ("save", "save_caches"), ("settle", "get_finished")],
)
def test_a_mistake_of_ours_in_an_encoders_worker_does_not_end_it(start, monkeypatch, method, hook):
    encoder = start("ec_producer")
    encoder.may_raise = {hook}
    monkeypatch.setattr(encoder.core.model_executor.ranks[0].connector._working, method, broken)
    answer = encoder.ask("1", item("red", 4, 32))
    encoder.run()
    assert answer.reason == "stop"


def test_a_lookup_that_breaks_is_a_miss(start, monkeypatch):
    consumer = start("ec_consumer")
    monkeypatch.setattr(consumer.connector._access.store, "fetch", broken)
    answer = consumer.ask("1", item("red", 4, 32))
    consumer.run()
    assert (answer.reason, consumer.counts["rejects"]) == ("length", {"error": 1})
