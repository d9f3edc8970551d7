from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from epd.proxy.series import Counts, Spread


def test_the_page_is_what_prometheus_reads() -> None:
    registry = CollectorRegistry()
    Counts(registry, "a", "A", {"x": "1"}).add()
    Counts(registry, "none", "None", {"x": "1"})
    by_label = Counts(registry, "b", "B", {"x": "1"}, ("y",))
    by_label.add("u", amount=2)
    by_label.add('v"')
    spread = Spread(registry, "s", "S", {"x": "1"}, (0.5, 1))
    for value in (0.1, 0.5, 0.6, 7):
        spread.observe(value)
    assert generate_latest(registry).decode().splitlines() == [
        "# HELP a_total A",
        "# TYPE a_total counter",
        'a_total{x="1"} 1.0',
        "# HELP none_total None",
        "# TYPE none_total counter",
        'none_total{x="1"} 0.0',
        "# HELP b_total B",
        "# TYPE b_total counter",
        'b_total{x="1",y="u"} 2.0',
        'b_total{x="1",y="v\\""} 1.0',
        "# HELP s S",
        "# TYPE s histogram",
        's_bucket{le="0.5",x="1"} 2.0',
        's_bucket{le="1.0",x="1"} 3.0',
        's_bucket{le="+Inf",x="1"} 4.0',
        's_count{x="1"} 4.0',
        's_sum{x="1"} 8.2',
    ]
