from __future__ import annotations

import pytest

from epd.manifests.context import Context
from epd.manifests.proxy_deployment import proxy_deployment
from epd.manifests.service import service, url
from unit.topology.objects import epd


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


@pytest.mark.parametrize(("port", "expected"), [(80, "http://qwen-vl.ai.svc"), (8080, "http://qwen-vl.ai.svc:8080")])
def test_url(port: int, expected: str) -> None:
    assert url(epd({"proxy.service.port": port})) == expected
