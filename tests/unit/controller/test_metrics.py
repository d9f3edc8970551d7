from __future__ import annotations

from prometheus_client import REGISTRY

from epd.controller.metrics import CacheGauges, ConditionGauges


def gauge(type_: str, status: str) -> float | None:
    labels = {"namespace": "ai", "name": "gauged", "type": type_, "status": status}
    return REGISTRY.get_sample_value("epd_condition", labels)


def test_one_status_holds_and_what_is_gone_is_removed() -> None:
    gauges = ConditionGauges()
    gauges.report("ai/gauged", {"Ready": "False", "EncodeReady": "Unknown"})
    assert [gauge("Ready", s) for s in ("True", "False", "Unknown")] == [0, 1, 0]
    gauges.report("ai/gauged", {"Ready": "True"})
    assert [gauge("Ready", s) for s in ("True", "False", "Unknown")] == [1, 0, 0]
    assert gauge("EncodeReady", "Unknown") is None
    gauges.report("ai/gauged", {})
    gauges.report("ai/gauged", {})
    assert gauge("Ready", "True") is None


def stored(metric: str, claim: str) -> float | None:
    return REGISTRY.get_sample_value(f"epd_encoder_cache_{metric}", {"namespace": "ai", "name": "g", "claim": claim})


def test_the_stores_gauges_follow_the_claim_and_go_when_nothing_is_known() -> None:
    gauges = CacheGauges()
    gauges.report("ai/g", "a", used=7, entries=0)
    assert (stored("used_bytes", "a"), stored("entries", "a")) == (7, 0)
    gauges.report("ai/g", "b", used=8, entries=2)
    assert (stored("used_bytes", "a"), stored("used_bytes", "b"), stored("entries", "b")) == (None, 8, 2)
    gauges.report("ai/g", "b", used=None, entries=2)
    gauges.report("ai/g")
    assert (stored("used_bytes", "b"), stored("entries", "b")) == (None, None)
