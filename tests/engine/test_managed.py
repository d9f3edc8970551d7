"""The class as vLLM's base class and its metrics want it."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase


@pytest.fixture
def connector(delivered):
    from epd_connector.managed import ManagedECConnector

    return ManagedECConnector


def test_parameters_have_the_names_of_the_base_class(connector):
    base = dict(inspect.getmembers(ECConnectorBase, inspect.isroutine))
    own = {name: value for name, value in vars(connector).items() if name in base and not name.startswith("__")}
    assert {"has_cache_item", "ensure_cache_available", "save_caches", "start_load_caches"} <= own.keys()
    for name in own:
        expected = inspect.signature(getattr(ECConnectorBase, name)).parameters
        found = inspect.signature(getattr(connector, name)).parameters
        assert [(p.name, p.kind) for p in found.values()] == [(p.name, p.kind) for p in expected.values()], name


def test_nothing_abstract_is_left(connector):
    assert not connector.__abstractmethods__


def test_the_module_imports_no_processor_and_starts_no_thread(tmp_path, delivered):
    program = (
        "import sys, threading; import vllm.distributed.ec_transfer.ec_connector.base; before = set(sys.modules);"
        "import epd_connector.managed; new = set(sys.modules) - before;"
        "assert not [n for n in new if n.startswith(('transformers', 'prometheus_client', 'vllm.multimodal'))], new;"
        "assert threading.active_count() == 1"
    )
    done = subprocess.run([sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}; {program}"], check=False)
    assert done.returncode == 0


def test_counts_reach_prometheus(connector):
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

    registry = CollectorRegistry()

    def bound(metric):
        return lambda name, documentation, labelnames, **options: metric(
            name, documentation, labelnames, registry=registry, **options
        )

    class Config:
        ec_transfer_config = None

    kinds = {Counter: bound(Counter), Gauge: bound(Gauge), Histogram: bound(Histogram)}
    metrics = connector.build_prom_metrics(Config(), kinds, ["model_name", "engine"], {0: ["m", "0"], 1: ["m", "1"]})
    stats = connector.build_ec_connector_stats({"hits": 1, "held": 3, "rejects": {"torn": 1}, "load_seconds": [0.2]})
    later = connector.build_ec_connector_stats({"hits": 2, "held": 2, "rejects": {"torn": 1}, "load_seconds": [0.4]})
    metrics.observe(stats.aggregate(later).data, 1)
    labels = {"model_name": "m", "engine": "1"}
    assert registry.get_sample_value("vllm:epd_ec_hits_total", labels) == 3
    assert registry.get_sample_value("vllm:epd_ec_hits_total", labels | {"engine": "0"}) == 0
    assert registry.get_sample_value("vllm:epd_ec_held", labels) == 2
    assert registry.get_sample_value("vllm:epd_ec_rejects_total", labels | {"reason": "torn"}) == 2
    assert registry.get_sample_value("vllm:epd_ec_load_seconds_sum", labels) == pytest.approx(0.6)
    assert stats.reduce() == {"hits": 3, "held": 2, "rejects[torn]": 2, "load_seconds_avg": 0.3}
    stats.reset()
    assert stats.is_empty()


def test_a_configuration_that_lacks_something_says_what(start, delivered):
    with pytest.raises(ValueError, match="ec_connector_extra_config lacks root, claim"):
        start("ec_consumer", extra={"root": None, "claim": None})
