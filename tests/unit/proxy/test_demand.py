"""What requests with media hold: counted once, given back once."""

from __future__ import annotations

import pytest

from epd.proxy.demand import Demand, Held
from epd.proxy.errors import FallbackLimitError
from epd.proxy.metrics import Metrics


def value(demand: Demand, name: str, **labels: str) -> float | None:
    return demand.metrics.registry.get_sample_value(name, {"namespace": "", "epd": "", **labels})


def waiting(demand: Demand) -> float | None:
    return value(demand, "epd_proxy_encode_demand", role="encode")


def demand(limit: int = 1) -> Demand:
    return Demand(metrics=Metrics(namespace="", epd=""), limit=limit)


def test_items_wait_until_they_are_settled_or_given_up() -> None:
    d = demand()
    first, second = d.of(2), d.of(3)
    assert waiting(d) == 5
    first.settle()
    assert waiting(d) == 3
    second.let_go()
    first.let_go()
    assert waiting(d) == 0
    assert value(d, "epd_proxy_encode_wanted_items_total", role="encode") == 5


def test_no_more_than_the_limit_fall_back_at_a_time() -> None:
    d = demand()

    def fall_back() -> Held:
        held = d.of(1)
        assert held.fall_back("gone") == "gone"
        return held

    first = fall_back()
    with pytest.raises(FallbackLimitError, match="gone"):
        fall_back()
    first.let_go()
    first.let_go()
    fall_back()
    assert (d.fallbacks, value(d, "epd_proxy_fallbacks_total", reason="gone")) == (1, 2)
