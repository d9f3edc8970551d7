from __future__ import annotations

from pathlib import Path

import pytest

from epd.proxy.api_keys import ApiKeys
from epd.proxy.errors import TenantOverloadedError, UnauthorizedError
from epd.proxy.isolation import Isolation, TenantIsolation
from epd.proxy.media import MediaPolicy
from epd.proxy.metrics import Metrics
from epd.proxy.tenancy import Tenancy
from epd.proxy.tenant_series import TenantSeries
from unit.proxy.mounts import Mount

A, B = "sk-aaaaaaaaaaaaaaaa", "sk-bbbbbbbbbbbbbbbb"


def tenancy(directory: Path, *, most: int = 0) -> Tenancy:
    keys = ApiKeys(Mount(directory, {"acme": A, "beta": B}).path, on_read=bool)
    series = TenantSeries(Metrics(namespace="ns", epd="demo"), namespace="ns", epd="demo")
    return Tenancy(keys=keys, isolation=Isolation(TenantIsolation.SALTED, MediaPolicy()), most=most, series=series)


def test_a_key_tells_the_tenant(tmp_path: Path) -> None:
    tenants = tenancy(tmp_path / "keys")
    assert tenants.identify({"authorization": f"Bearer {A}"}) == "acme"
    assert tenants.identify({"x-api-key": B}) == "beta"
    assert tenants.policy("acme").salt != tenants.policy("beta").salt


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({}, "no API key was given"),
        ({"authorization": f"Basic {A}"}, "no API key was given"),
        ({"authorization": "Bearer "}, "is not valid"),
        ({"authorization": f"Bearer {A}x"}, "is not valid"),
        ({"authorization": "Bearer wrong-wrong-wrong", "x-api-key": A}, "is not valid"),
        ({"x-api-key": f"{A}, {B}"}, "is not valid"),
        ({"x-api-key": "\xff\xfe"}, "is not valid"),
    ],
)
def test_without_a_key_in_force_nobody_is_a_tenant(headers: dict[str, str], words: str, tmp_path: Path) -> None:
    with pytest.raises(UnauthorizedError, match=words) as refusal:
        tenancy(tmp_path / "keys").identify(headers)
    error = refusal.value
    assert (error.status, error.error_code) == (401, "invalid_api_key")
    assert error.headers()["www-authenticate"] == "Bearer"
    assert not [value for value in headers.values() if value in error.body().decode()]


def test_a_tenant_has_its_places_and_no_others(tmp_path: Path) -> None:
    tenants = tenancy(tmp_path / "keys", most=2)
    tenants.enter("acme")
    tenants.enter("acme")
    with pytest.raises(TenantOverloadedError, match="2 requests") as refusal:
        tenants.enter("acme")
    assert (refusal.value.status, refusal.value.error_code) == (429, "tenant_overloaded")
    assert refusal.value.headers()["retry-after"] == "1"
    tenants.enter("beta")
    tenants.leave("acme")
    tenants.enter("acme")
    for tenant in ("acme", "acme", "beta"):
        tenants.leave(tenant)
    assert tenants._in_flight == {}


def test_no_bound_is_none(tmp_path: Path) -> None:
    tenants = tenancy(tmp_path / "keys")
    for _ in range(5000):
        tenants.enter("acme")
    assert tenants._in_flight == {"acme": 5000}
