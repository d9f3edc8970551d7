from __future__ import annotations

from epd.api.names import Role
from epd.proxy.metrics import Metrics
from epd.proxy.pods import Member
from epd.proxy.routing import InFlight
from epd.proxy.transport import Cause

NAMES = {
    "epd_proxy_client_disconnects_total",
    "epd_proxy_ejected_members",
    "epd_proxy_ejections_total",
    "epd_proxy_encode_demand",
    "epd_proxy_encode_seconds_bucket",
    "epd_proxy_encode_wanted_items_total",
    "epd_proxy_encoders_misconfigured_total",
    "epd_proxy_encodes_total",
    "epd_proxy_fallbacks_total",
    "epd_proxy_in_flight",
    "epd_proxy_members",
    "epd_proxy_pod_watch_errors_total",
    "epd_proxy_queue_seconds_bucket",
    "epd_proxy_queued",
    "epd_proxy_reconnects_total",
    "epd_proxy_request_body_bytes_total",
    "epd_proxy_request_seconds_bucket",
    "epd_proxy_requests_total",
    "epd_proxy_resends_total",
    "epd_proxy_response_body_bytes_total",
    "epd_proxy_retries_total",
    "epd_proxy_rewritten_requests_total",
    "epd_proxy_time_to_first_token_seconds_bucket",
}


def used() -> Metrics:
    metrics = Metrics(namespace="ai", epd="qwen")
    metrics.request(route="/v1/models", code=200)
    metrics.ended("/v1/models", "answered", seconds=0.2, received=0, sent=300)
    metrics.encoded("encoded", 2)
    metrics.encoded("coalesced", 0)
    metrics.fallback("no-encoder")
    metrics.ejected(Role.ENCODE)
    metrics.retried(Role.ENCODE, Cause.STATUS)
    metrics.rewritten()
    metrics.resent(Cause.STREAM_ERROR)
    metrics.encoders_misconfigured("unknown-model")
    return metrics


def test_names_and_labels_are_an_api() -> None:
    page = used().render(members=(), load=InFlight(), requests=0).decode()
    lines = [line for line in page.splitlines() if not line.startswith("#")]
    assert {name for line in lines if (name := line.partition("{")[0]) in NAMES} == NAMES
    ours = [line for line in lines if line.startswith("epd_")]
    assert all('namespace="ai"' in line and 'epd="qwen"' in line for line in ours)
    assert {line.split("_")[0] for line in lines} == {"epd", "process"}


def test_of_a_role_that_nobody_has_any_more_the_last_numbers_do_not_stay() -> None:
    metrics, load = Metrics(namespace="", epd=""), InFlight()
    first = Member(name="f", role=Role.PREFILL, pairing="p", address="http://f", ready=True)
    load.begin("f")
    for members, number in (((first,), 1), ((), 0)):
        metrics.render(members=members, load=load, requests=0, ejected={"f"})
        labels = {"namespace": "", "epd": "", "role": "prefill"}
        for name, more in (("members", {"ready": "true"}), ("in_flight", {}), ("ejected_members", {})):
            assert metrics.registry.get_sample_value(f"epd_proxy_{name}", labels | more) == number


def test_gauges_show_the_moment() -> None:
    metrics, load = used(), InFlight()
    ready, out = (
        Member(name=name, role=Role.ENCODE, pairing="p", address="http://a", ready=name == "e0")
        for name in ("e0", "e1")
    )
    load.begin("e0", 3)
    metrics.encode_wanted(3)
    metrics.render(members=(ready, out), load=load, requests=2, waiting=4, ejected={"e0"})
    base = {"namespace": "ai", "epd": "qwen"}

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, base | labels)

    assert value("epd_proxy_members", role="encode", ready="true") == 1
    assert value("epd_proxy_members", role="encode", ready="false") == 1
    assert value("epd_proxy_in_flight", role="encode") == 3
    assert value("epd_proxy_in_flight", role="proxy") == 2
    assert value("epd_proxy_encode_demand", role="encode") == 3
    assert value("epd_proxy_queued") == 4
    assert value("epd_proxy_ejected_members", role="encode") == 1
    assert value("epd_proxy_ejected_members", role="prefill-decode") == 0
    load.end("e0", 3)
    metrics.encode_settled(3)
    metrics.render(members=(), load=load, requests=0)
    assert value("epd_proxy_queued") == 0
    assert value("epd_proxy_ejected_members", role="encode") == 0
    assert value("epd_proxy_members", role="encode", ready="true") == 0
    assert value("epd_proxy_in_flight", role="encode") == 0
    assert value("epd_proxy_encode_demand", role="encode") == 0


def test_calls_that_were_sent_over_another_connection() -> None:
    metrics, base = used(), {"namespace": "ai", "epd": "qwen"}
    assert metrics.registry.get_sample_value("epd_proxy_reconnects_total", base) == 0
    metrics.reconnected()
    metrics.reconnected()
    assert metrics.registry.get_sample_value("epd_proxy_reconnects_total", base) == 2


def test_totals() -> None:
    assert used().totals() == {
        "requests": {"200": 1},
        "encodes": {"encoded": 2},
        "fallbacks": {"no-encoder": 1},
        "retries": {"status": 1},
        "resends": {"stream-error": 1},
        "misconfigured": {"unknown-model": 1},
    }
