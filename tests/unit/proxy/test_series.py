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
    by_route = Spread(registry, "t", "T", {"x": "1"}, (1,), ("route",))
    by_route.observe(3, "/a")
    by_route.observe(1, "/b")
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
        "# HELP t T",
        "# TYPE t histogram",
        't_bucket{le="1.0",route="/a",x="1"} 0.0',
        't_bucket{le="+Inf",route="/a",x="1"} 1.0',
        't_count{route="/a",x="1"} 1.0',
        't_sum{route="/a",x="1"} 3.0',
        't_bucket{le="1.0",route="/b",x="1"} 1.0',
        't_bucket{le="+Inf",route="/b",x="1"} 1.0',
        't_count{route="/b",x="1"} 1.0',
        't_sum{route="/b",x="1"} 1.0',
    ]
