from __future__ import annotations

from pathlib import Path

import pytest

from epd.proxy import tenant_series
from epd.proxy.api_keys import ApiKeys
from epd.proxy.metrics import Metrics
from epd.proxy.tenant_series import OTHERS, TenantSeries
from unit.proxy.mounts import Mount


def shown(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """Values by the labels after namespace and epd."""
    return {
        tuple(value for label, value in sample.labels.items() if label not in ("namespace", "epd")): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == name
    }


def test_what_tenants_do(tmp_path: Path) -> None:
    metrics = Metrics(namespace="ns", epd="demo")
    series = TenantSeries(metrics, namespace="ns", epd="demo")
    mount = Mount(tmp_path / "keys", {"acme": "short\nsk-aaaaaaaaaaaaaaaa"})
    series.keys = keys = ApiKeys(mount.path, on_read=series.read)
    for tenant, outcome in [("acme", "answered"), ("acme", "left"), ("beta", "answered"), ("acme", "answered")]:
        series.ended(tenant, outcome)
    series.in_flight.update(acme=3)
    assert shown(metrics, "epd_proxy_tenant_requests_total") == {
        ("acme", "answered"): 2,
        ("acme", "left"): 1,
        ("beta", "answered"): 1,
    }
    assert shown(metrics, "epd_proxy_tenant_in_flight") == {("acme",): 3}
    assert shown(metrics, "epd_proxy_api_keys") == {("valid",): 1, ("refused",): 1}
    (mount.path / "..data").unlink()
    keys.refresh()
    assert shown(metrics, "epd_proxy_api_key_readings_total") == {("succeeded",): 1, ("failed",): 1}


def test_no_more_tenants_have_series_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_series, "SHOWN_TENANTS", 2)
    metrics = Metrics(namespace="ns", epd="demo")
    series = TenantSeries(metrics, namespace="ns", epd="demo")
    for tenant in ("a", "b", "c", "d", "a"):
        series.ended(tenant, "answered")
    series.in_flight.update(c=2, b=1, d=5)
    assert shown(metrics, "epd_proxy_tenant_requests_total") == {
        ("a", "answered"): 2,
        ("b", "answered"): 1,
        (OTHERS, "answered"): 2,
    }
    assert shown(metrics, "epd_proxy_tenant_in_flight") == {(OTHERS,): 7, ("b",): 1}
