from __future__ import annotations

from prometheus_client import REGISTRY

from epd.controller.metrics import ConditionGauges


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
