"""Turns where keys are in force: who is served, what a tenant learns, and its places."""

from __future__ import annotations

from pathlib import Path

import pytest

from epd.proxy.errors import (
    BodyTooLargeError,
    OverloadedError,
    ProxyError,
    TenantOverloadedError,
    UnauthorizedError,
    UnsupportedEncodingError,
)
from epd.proxy.server import DataPort
from epd.proxy.settings import Limits
from unit.proxy.ports import ACME, CHAT, OF_ACME, OF_BETA, port, turn


def tenants_counted(data_port: DataPort) -> dict[tuple[str, str], float]:
    return {
        (sample.labels["tenant"], sample.labels["outcome"]): sample.value
        for family in data_port.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "epd_proxy_tenant_requests_total"
    }


@pytest.mark.parametrize("line", [CHAT, "GET /v1/models", "GET /v1/responses/resp_1", "POST /tokenize"])
async def test_with_keys_in_force_nobody_is_served_without_one(line: str, tmp_path: Path) -> None:
    data_port = port(keys=tmp_path / "keys")
    for fields in ((), (f"Authorization: Bearer {ACME[:-1]}",), (f"Authorization: Basic {ACME}",)):
        refused = turn(data_port, line, *fields)
        with pytest.raises(UnauthorizedError) as refusal:
            refused.begin()
        reply = refused.refuse(refusal.value)
        refused.end(left=False)
        assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
    for fields, tenant in ((OF_ACME, "acme"), (OF_BETA, "beta")):
        taken = turn(data_port, line, fields)
        taken.begin()
        assert (taken.tenant, taken._forwarded) == (tenant, {})
        taken.end(left=True)
    assert (data_port.in_flight, tenants_counted(data_port)) == (0, {("acme", "left"): 1, ("beta", "left"): 1})


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("GET /health", ()),
        ("HEAD /healthz", ()),
        ("GET /healthz", ("Authorization: Bearer wrong",)),
        ("OPTIONS /v1/chat/completions", ("Origin: https://a.example", "Access-Control-Request-Method: POST")),
    ],
)
async def test_health_and_preflights_need_no_key(line: str, fields: tuple[str, ...], tmp_path: Path) -> None:
    data_port = port(keys=tmp_path / "keys", origins=frozenset({"https://a.example"}))
    asked = turn(data_port, line, *fields)
    asked.begin()
    assert (await asked.answer()).status in (204, 503)
    asked.end(left=False)
    assert tenants_counted(data_port) == {}


async def test_who_may_not_be_served_learns_no_more_than_the_routes(tmp_path: Path) -> None:
    data_port = port(keys=tmp_path / "keys", suspended=True, limits=Limits(max_body_bytes=1))
    for line, fields, status in [
        ("GET /metrics", (), 404),
        ("GET /v1/chat/completions", (), 405),
        (CHAT, ("Content-Length: 100",), 401),
        (CHAT, (OF_ACME,), 503),
    ]:
        with pytest.raises(ProxyError) as refusal:
            turn(data_port, line, *fields).begin()
        assert refusal.value.status == status


async def test_a_tenants_key_stays_here_and_its_trace_goes_on(tmp_path: Path) -> None:
    fields = (OF_ACME, "traceparent: 00-1-2-01", OF_BETA)
    forwarded = turn(port(keys=tmp_path / "keys"), CHAT, *fields)
    forwarded.begin()
    assert forwarded._forwarded == {"traceparent": "00-1-2-01"}


async def test_a_tenants_places_are_given_back_however_its_requests_end(tmp_path: Path) -> None:
    data_port = port(keys=tmp_path / "keys", limits=Limits(max_in_flight=3, max_in_flight_per_tenant=2))
    for _ in range(3):
        left, failed = (turn(data_port, CHAT, OF_ACME, "Content-Length: 100") for _ in range(2))
        left.begin()
        failed.begin()
        third, other = turn(data_port, CHAT, OF_ACME), turn(data_port, CHAT, OF_BETA)
        with pytest.raises(TenantOverloadedError) as refusal:
            third.begin()
        reply = third.refuse(refusal.value)
        third.end(left=False)
        assert (reply.status, reply.headers["retry-after"]) == (429, "1")
        other.begin()
        # beyond what all may have together, a tenant has no place more
        full = turn(data_port, CHAT, OF_BETA)
        with pytest.raises(OverloadedError, match="maxInFlight"):
            full.begin()
        full.end(left=False)
        assert (data_port.in_flight, data_port.tenancy and data_port.tenancy._in_flight) == (3, {"acme": 2, "beta": 1})
        left.end(left=True)
        # answered before its body was there, by a connection that refuses it
        failed.refuse(BodyTooLargeError("no"))
        failed.end(left=False)
        assert (await other.answer()).status == 400
        other.end(left=False)
        # refused behind the door
        compressed = turn(data_port, CHAT, OF_ACME, "Content-Encoding: gzip")
        with pytest.raises(UnsupportedEncodingError):
            compressed.begin()
        compressed.end(left=False)
        assert (data_port.in_flight, data_port.tenancy and data_port.tenancy._in_flight) == (0, {})
    assert tenants_counted(data_port)["acme", "overloaded"] == 3
