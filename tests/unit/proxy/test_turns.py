"""The data port's judgement of heads, without sockets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from epd.api.names import Role
from epd.proxy.access_log import AccessLog, AccessPolicy
from epd.proxy.api_keys import ApiKeys
from epd.proxy.bodies import Bodies
from epd.proxy.errors import (
    BodyTooLargeError,
    OverloadedError,
    ProxyError,
    TenantOverloadedError,
    UnauthorizedError,
    UnsupportedEncodingError,
)
from epd.proxy.exchange import Exchange
from epd.proxy.head import parse_head
from epd.proxy.isolation import Isolation, TenantIsolation
from epd.proxy.metrics import Metrics
from epd.proxy.pods import Members
from epd.proxy.routing import InFlight
from epd.proxy.server import DataPort
from epd.proxy.settings import EncoderFailurePolicy, Limits, Settings
from epd.proxy.tenancy import Tenancy
from epd.proxy.tenant_series import TenantSeries
from epd.proxy.transport import Transport
from epd.proxy.turns import UNWANTED_LIMIT, RequestTurn
from unit.proxy.mounts import Mount


def port(
    *,
    limits: Limits | None = None,
    origins: frozenset[str] = frozenset(),
    room: int | None = None,
    keys: Path | None = None,
    suspended: bool = False,
    access_log: AccessLog | None = None,
) -> DataPort:
    limits = limits or Limits()
    settings = Settings(
        host="127.0.0.1",
        port=0,
        admin_port=0,
        roles=frozenset({Role.ENCODE, Role.PREFILL_DECODE}),
        limits=limits,
        allowed_origins=origins,
        suspended=suspended,
    )
    metrics = Metrics(namespace="ns", epd="demo")
    exchange = Exchange(
        encodes=True,
        rewrites=False,
        policy=EncoderFailurePolicy.FALLBACK,
        limits=limits,
        transport=Transport,  # type: ignore[arg-type] # never used
        members=Members(),
        load=InFlight(),
        metrics=metrics,
    )
    tenancy = None
    if keys is not None:
        series = TenantSeries(metrics, namespace="ns", epd="demo")
        read = ApiKeys(Mount(keys, {"acme": ACME, "beta": BETA}).path, on_read=series.read)
        isolation = Isolation(TenantIsolation.SALTED, settings.media)
        tenancy = Tenancy(keys=read, isolation=isolation, most=limits.max_in_flight_per_tenant, series=series)
    return DataPort(
        settings=settings,
        exchange=exchange,
        metrics=metrics,
        bodies=Bodies(room=room),
        tenancy=tenancy,
        access_log=access_log,
    )


def turn(data_port: DataPort, line: str, *fields: str) -> RequestTurn:
    head = "\r\n".join([f"{line} HTTP/1.1", "Host: p", *fields, ""]).encode()
    return data_port.turn(parse_head(head, len(head)))


CHAT = "POST /v1/chat/completions"
ACME, BETA = "sk-aaaaaaaaaaaaaaaa", "sk-bbbbbbbbbbbbbbbb"
OF_ACME, OF_BETA = f"Authorization: Bearer {ACME}", f"x-api-key: {BETA}"


def requests_counted(data_port: DataPort, route: str, code: int) -> float:
    labels = {"namespace": "ns", "epd": "demo", "route": route, "code": str(code)}
    return data_port.metrics.registry.get_sample_value("epd_proxy_requests_total", labels) or 0.0


async def test_a_request_is_in_flight_from_its_head_to_its_end() -> None:
    data_port = port()
    first, second = turn(data_port, CHAT, "Content-Length: 5"), turn(data_port, CHAT, "Content-Length: 7")
    first.begin()
    second.begin()
    first.feed(b"12345")
    second.feed(b"12")
    assert (data_port.in_flight, data_port.bodies.taken, data_port.idle.is_set()) == (2, 7, False)
    first.end(left=True)
    second_sent = len(second.refuse(BodyTooLargeError("no")).body)
    second.end(left=False)
    assert (data_port.in_flight, data_port.bodies.taken, data_port.idle.is_set()) == (0, 0, True)
    assert (
        data_port.metrics.registry.get_sample_value(
            "epd_proxy_client_disconnects_total", {"namespace": "ns", "epd": "demo"}
        )
        == 1
    )
    assert requests_counted(data_port, "/v1/chat/completions", 413) == 1
    route = {"namespace": "ns", "epd": "demo", "route": "/v1/chat/completions"}
    value = data_port.metrics.registry.get_sample_value
    for outcome in ("left", "refused"):
        assert value("epd_proxy_request_seconds_count", route | {"outcome": outcome}) == 1
    assert value("epd_proxy_request_body_bytes_total", route) == 7
    assert second_sent == value("epd_proxy_response_body_bytes_total", route)


async def test_what_is_refused_takes_no_place() -> None:
    data_port = port(limits=Limits(max_in_flight=1, max_body_bytes=10), room=100)
    for fields, error in [
        (["Content-Length: 11"], BodyTooLargeError),
        (["Content-Length: 5", "Content-Encoding: gzip"], UnsupportedEncodingError),
    ]:
        refused = turn(data_port, CHAT, *fields)
        with pytest.raises(error):
            refused.begin()
        refused.end(left=False)
        assert (data_port.in_flight, data_port.bodies.taken, data_port.idle.is_set()) == (0, 0, True)
    one, other = turn(data_port, CHAT), turn(data_port, CHAT)
    one.begin()
    with pytest.raises(OverloadedError):
        other.begin()
    other.end(left=False)
    assert data_port.in_flight == 1


async def test_requests_that_need_no_body_may_bring_a_little() -> None:
    data_port = port()
    announced = turn(data_port, "GET /health", f"Content-Length: {UNWANTED_LIMIT + 1}")
    with pytest.raises(BodyTooLargeError):
        announced.begin()
    chunked = turn(data_port, "GET /v1/models", "Transfer-Encoding: chunked")
    chunked.begin()
    chunked.feed(b"x" * UNWANTED_LIMIT)
    with pytest.raises(BodyTooLargeError):
        chunked.feed(b"x")
    chunked.end(left=False)
    assert data_port.in_flight == 0


@pytest.mark.parametrize("line", ["GET /v1/models", "GET /v1/responses/resp_1", "DELETE /v1/responses/resp_1", CHAT])
async def test_whatever_an_engine_answers_takes_a_place(line: str) -> None:
    data_port = port(limits=Limits(max_in_flight=1))
    one, other, health = turn(data_port, line), turn(data_port, line), turn(data_port, "GET /health")
    one.begin()
    with pytest.raises(OverloadedError):
        other.begin()
    health.begin()
    other.end(left=False)
    health.end(left=False)
    assert data_port.in_flight == 1
    one.end(left=False)
    assert (data_port.in_flight, data_port.idle.is_set()) == (0, True)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("GET /v1/chat/completions", 405),
        ("OPTIONS /v1/chat/completions", 405),
        ("OPTIONS *", 404),
        ("POST /v1/chat/completions/", 404),
        ("POST /invocations", 404),
        ("GET /v1/responses/resp_1/x", 404),
        ("GET /metrics", 404),
    ],
)
async def test_refusals_before_the_body(line: str, status: int) -> None:
    data_port = port()
    refused = turn(data_port, line)
    with pytest.raises(ProxyError) as refusal:
        refused.begin()
    reply = refused.refuse(refusal.value)
    assert (reply.status, len(reply.headers["x-request-id"])) == (status, 32)


@pytest.mark.parametrize(
    ("line", "anthropic"),
    [
        ("POST /v1/messages", True),
        ("POST /v1/messages?beta=true", True),
        ("GET /v1/messages", True),
        ("POST /v1/messages/count_tokens", True),
        ("POST /v1/messages/batches", False),
        ("POST /v1/chat/completions", False),
        ("POST /v1/responses", False),
    ],
)
async def test_errors_have_the_shape_of_the_api_that_was_asked(line: str, anthropic: bool) -> None:
    refused = turn(port(limits=Limits(max_in_flight=0)), line, "Content-Length: 5")
    with pytest.raises(ProxyError) as error:
        refused.begin()
    assert refused.refuse(error.value).body == (error.value.anthropic_body() if anthropic else error.value.body())


async def test_a_browser_asks_before_it_sends() -> None:
    data_port = port(origins=frozenset({"https://a.example"}))
    fields = ("Origin: https://a.example", "Access-Control-Request-Method: POST")
    asked = turn(data_port, "OPTIONS /v1/chat/completions", *fields)
    asked.begin()
    reply = await asked.answer()
    assert (reply.status, reply.headers["access-control-allow-methods"]) == (204, "POST")
    assert reply.headers["access-control-allow-origin"] == "https://a.example"
    for line, fields in [
        ("OPTIONS /v1/chat/completions", ("Origin: https://b.example", "Access-Control-Request-Method: POST")),
        ("OPTIONS /v1/chat/completions", ("Origin: https://a.example", "Access-Control-Request-Method: PUT")),
        ("OPTIONS /v1/chat/completions", ("Origin: https://a.example",)),
        ("OPTIONS /sleep", ("Origin: https://a.example", "Access-Control-Request-Method: POST")),
    ]:
        with pytest.raises(ProxyError) as refusal:
            turn(data_port, line, *fields).begin()
        assert refusal.value.status in (404, 405)
    # a refusal may be read too, or the page would only see that something failed
    health = turn(data_port, "GET /health", "Origin: https://a.example")
    health.begin()
    reply = await health.answer()
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (503, "https://a.example")


async def test_only_named_headers_are_forwarded_and_none_that_is_for_this_hop() -> None:
    data_port = port()
    fields = ("Authorization: Bearer k", "traceparent: 00-1-2-01", "Cookie: a=b", "X-data-parallel-rank: 1")
    plain = turn(data_port, CHAT, *fields)
    plain.begin()
    assert plain._forwarded == {"authorization": "Bearer k", "traceparent": "00-1-2-01"}
    hop = turn(data_port, CHAT, *fields, "Connection: keep-alive, TraceParent")
    hop.begin()
    assert hop._forwarded == {"authorization": "Bearer k"}


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


async def test_what_a_request_came_to_is_logged_once_it_is_over(tmp_path: Path) -> None:
    written: list[bytes] = []
    log = AccessLog(AccessPolicy(rate=1), write=written.append)
    data_port = port(keys=tmp_path, access_log=log)
    refused = turn(data_port, CHAT, OF_ACME, "Content-Length: 5", "X-Request-Id: r1")
    refused.begin()
    refused.feed(b"12345")
    body = refused.refuse(OverloadedError("too many")).body
    refused.end(left=False)
    left = turn(data_port, CHAT, OF_ACME)
    left.begin()
    left.end(left=True)
    log.close()
    said = [json.loads(line) for line in b"".join(written).splitlines()]
    assert said[0] == {
        "time": said[0]["time"],
        "request_id": "r1",
        "tenant": "acme",
        "method": "POST",
        "route": "/v1/chat/completions",
        "status": 429,
        "code": "too_many_requests",
        "outcome": "refused",
        "seconds": said[0]["seconds"],
        "received_bytes": 5,
        "sent_bytes": len(body),
    }
    assert (said[1]["outcome"], "status" in said[1]) == ("left", False)
    assert ACME not in b"".join(written).decode()
