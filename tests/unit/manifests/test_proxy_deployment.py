from __future__ import annotations

from typing import Any

import pytest

from epd.api.names import Role
from epd.manifests.context import Context
from epd.manifests.proxy_deployment import proxy_args, proxy_deployment
from epd.proxy.main import build_parser, read_settings
from epd.proxy.settings import EncoderFailurePolicy, Settings
from unit.topology.objects import ABSENT, epd

CONTEXT = Context(operator_image="op:1", operator_image_pull_policy="Never")


def settings(changes: dict[str, Any]) -> Settings:
    parser = build_parser()
    return read_settings(parser, parser.parse_args(proxy_args(epd(changes))))


def pod(changes: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = proxy_deployment(epd(changes), CONTEXT)["spec"]["template"]["spec"]
    return spec


def test_the_proxy_reads_what_the_spec_says() -> None:
    found = settings(
        {
            "encoderCache.hashAlgorithm": "SHA256",
            "proxy.encoderFailurePolicy": "Fail",
            "proxy.timeouts": {"request": "1h", "encode": "5m", "idle": "30s"},
            "proxy.limits": {"maxInFlight": 7, "maxFallbackEncodes": 0},
            "proxy.media": {"allowedDomains": ["a.example", "b.example"], "maxBodySize": "1Gi"},
            "suspend": True,
        }
    )
    assert (found.namespace, found.epd, found.roles) == ("ai", "qwen-vl", {Role.ENCODE, Role.PREFILL_DECODE})
    assert (found.port, found.admin_port, found.suspended) == (8000, 9090, True)
    assert found.policy is EncoderFailurePolicy.FAIL
    assert (found.limits.request_seconds, found.limits.encode_seconds, found.limits.idle_seconds) == (3600, 300, 30)
    assert (found.limits.max_in_flight, found.limits.max_fallback_encodes) == (7, 0)
    assert found.limits.max_body_bytes == 2**30
    assert found.media.allowed_domains == {"a.example", "b.example"}
    assert str(found.media.hash_algorithm) == "SHA256"
    assert found.drain.timeout_seconds == 3600


def test_defaults_and_aggregated() -> None:
    found = settings({"encode": ABSENT, "encoderCache": ABSENT})
    assert found.roles == {Role.PREFILL_DECODE}
    assert found.media.allowed_domains == frozenset()
    assert not found.suspended


def test_it_has_time_to_drain() -> None:
    found = settings({})
    grace = pod({})["terminationGracePeriodSeconds"]
    assert grace == found.drain.delay_seconds + found.drain.timeout_seconds + 10


def test_no_gap_in_a_rollout() -> None:
    spec = proxy_deployment(epd({"proxy.replicas": 3}), CONTEXT)["spec"]
    assert spec["replicas"] == 3
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    assert spec["selector"]["matchLabels"] == {"epd.dev/name": "qwen-vl", "app.kubernetes.io/component": "proxy"}


def test_restricted_pod_security() -> None:
    spec = pod({})
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsUser": 65532,
        "runAsGroup": 65532,
    }
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert "runAsUser" not in pod({"securityContext": {"runAsNonRoot": True}})["securityContext"]


def test_container_and_secrets() -> None:
    spec = pod({"imagePullSecrets": [{"name": "s"}, {"name": "t"}]})
    (container,) = spec["containers"]
    assert (container["image"], container["imagePullPolicy"], container["command"]) == ("op:1", "Never", ["epd-proxy"])
    assert container["resources"] == {"limits": {"memory": "1Gi"}, "requests": {"cpu": "250m", "memory": "256Mi"}}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "admin"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "admin"}
    assert spec["imagePullSecrets"] == [{"name": "s"}, {"name": "t"}]
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("qwen-vl-proxy", True)


def test_pod_template() -> None:
    template = {"metadata": {"labels": {"epd.dev/name": "x", "a": "b"}}, "spec": {"priorityClassName": "high"}}
    found = proxy_deployment(epd({"proxy.podTemplate": template}), CONTEXT)["spec"]["template"]
    assert found["metadata"]["labels"]["epd.dev/name"] == "qwen-vl"
    assert found["metadata"]["labels"]["a"] == "b"
    assert found["spec"]["priorityClassName"] == "high"


@pytest.mark.parametrize("path", ["encode.replicas", "encode.port"])
def test_roles_change_nothing(path: str) -> None:
    assert proxy_deployment(epd({path: 9}), CONTEXT) == proxy_deployment(epd(), CONTEXT)


@pytest.mark.parametrize(
    ("changes", "rewrite"),
    [
        ({}, True),
        ({"encode": ABSENT}, False),
        ({"encoderCache.connector": "Example"}, False),
        ({"encoderCache.connector": "Custom", "encoderCache.custom": {"module": "a", "class": "B"}}, False),
        ({"encode": ABSENT, "encoderCache": ABSENT}, False),
    ],
)
def test_media_are_left_out_only_where_a_lost_entry_is_survived(changes: dict[str, Any], rewrite: bool) -> None:
    assert settings(changes).rewrite is rewrite
