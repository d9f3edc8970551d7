"""The data port's judgement of heads, without sockets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from epd.proxy.access_log import AccessLog, AccessPolicy
from epd.proxy.errors import BodyTooLargeError, OverloadedError, ProxyError, UnsupportedEncodingError
from epd.proxy.server import DataPort
from epd.proxy.settings import Limits
from epd.proxy.turns import UNWANTED_LIMIT
from unit.proxy.ports import ACME, CHAT, OF_ACME, port, turn


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
