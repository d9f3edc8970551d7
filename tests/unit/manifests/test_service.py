from __future__ import annotations

from typing import Any

import pytest

from epd.manifests.context import Context
from epd.manifests.proxy_deployment import proxy_deployment
from epd.manifests.service import service, url
from unit.topology.objects import ABSENT, epd


def test_in_front_of_the_proxy() -> None:
    child = service(epd({"proxy.service": {"type": "LoadBalancer", "port": 8080, "annotations": {"a": "b"}}}))
    assert child["metadata"]["name"] == "qwen-vl"
    assert child["metadata"]["annotations"] == {"a": "b"}
    assert child["spec"] == {
        "type": "LoadBalancer",
        "selector": {"epd.dev/name": "qwen-vl", "app.kubernetes.io/component": "proxy"},
        "ports": [{"name": "http", "port": 8080, "targetPort": "http", "protocol": "TCP", "appProtocol": "http"}],
    }


def test_it_finds_the_proxys_pods_and_port() -> None:
    template = proxy_deployment(epd(), Context(operator_image="a"))["spec"]["template"]
    assert service(epd())["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert "http" in {port["name"] for port in template["spec"]["containers"][0]["ports"]}


def test_with_a_certificate_it_leads_to_pods_that_have_one() -> None:
    given = epd({"proxy.tls": {"secretName": "web"}})
    assert service(given)["spec"]["ports"] == [
        {"name": "https", "port": 443, "targetPort": "https", "protocol": "TCP", "appProtocol": "https"}
    ]
    with_one, without = (
        proxy_deployment(each, Context(operator_image="a"))["spec"]["template"]["spec"]["containers"][0]["ports"]
        for each in (given, epd())
    )
    assert "https" in {port["name"] for port in with_one}
    assert "https" not in {port["name"] for port in without}


@pytest.mark.parametrize(
    ("port", "tls", "expected"),
    [
        (ABSENT, ABSENT, "http://qwen-vl.ai.svc"),
        (80, ABSENT, "http://qwen-vl.ai.svc"),
        (443, ABSENT, "http://qwen-vl.ai.svc:443"),
        (8080, ABSENT, "http://qwen-vl.ai.svc:8080"),
        (ABSENT, {"secretName": "web"}, "https://qwen-vl.ai.svc"),
        (443, {"secretName": "web"}, "https://qwen-vl.ai.svc"),
        (80, {"secretName": "web"}, "https://qwen-vl.ai.svc:80"),
    ],
)
def test_url(port: Any, tls: Any, expected: str) -> None:
    given = epd({"proxy.service.port": port, "proxy.tls": tls})
    assert url(given) == expected
    assert given.spec.proxy.port == service(given)["spec"]["ports"][0]["port"]
