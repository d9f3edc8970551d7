from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from epd.manifests.context import Context
from epd.manifests.proxy_deployment import proxy_deployment
from unit.manifests.proxy_settings import settings
from unit.topology.objects import epd

CONTEXT = Context(operator_image="op:1", operator_image_pull_policy="Never")


def pod(changes: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = proxy_deployment(epd(changes), CONTEXT)["spec"]["template"]["spec"]
    return spec


def test_it_has_time_to_drain() -> None:
    drain = settings({"proxy.timeouts.request": "1h"}).drain
    grace = pod({"proxy.timeouts.request": "1h"})["terminationGracePeriodSeconds"]
    assert grace == drain.delay_seconds + drain.timeout_seconds + 10


def test_no_gap_in_a_rollout() -> None:
    spec = proxy_deployment(epd({"proxy.replicas": 3}), CONTEXT)["spec"]
    assert spec["replicas"] == 3
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    assert spec["selector"]["matchLabels"] == {"epd.dev/name": "qwen-vl", "app.kubernetes.io/component": "proxy"}


@pytest.mark.parametrize(
    ("changes", "replicas"),
    [
        ({}, 2),
        ({"proxy.replicas": 0}, 0),
        ({"proxy.scaling.mode": "Static"}, 2),
        ({"proxy.scaling.mode": "External"}, None),
        ({"suspend": True}, 2),
    ],
)
def test_replicas(changes: dict[str, Any], replicas: int | None) -> None:
    assert proxy_deployment(epd(changes), CONTEXT)["spec"].get("replicas") == replicas


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


def test_secrets_are_directories_that_the_kubelet_renews() -> None:
    spec = pod({"proxy.tls": {"secretName": "web"}, "proxy.auth": {"apiKeys": {"secretName": "tenants"}}})
    (container,) = spec["containers"]
    assert spec["volumes"] == [
        {
            "name": "tls",
            "secret": {
                "secretName": "web",
                "items": [{"key": "tls.crt", "path": "tls.crt"}, {"key": "tls.key", "path": "tls.key"}],
            },
        },
        {"name": "api-keys", "secret": {"secretName": "tenants"}},
    ]
    assert container["volumeMounts"] == [
        {"name": "tls", "mountPath": "/var/lib/epd/tls", "readOnly": True},
        {"name": "api-keys", "mountPath": "/var/lib/epd/api-keys", "readOnly": True},
    ]


def test_of_the_engines_secret_the_proxy_sees_the_cas_alone() -> None:
    spec = pod({"engine.tls": {"secretName": "engines"}})
    assert spec["volumes"] == [
        {"name": "engine-ca", "secret": {"secretName": "engines", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    ]
    assert spec["containers"][0]["volumeMounts"] == [
        {"name": "engine-ca", "mountPath": "/var/lib/epd/engine-ca", "readOnly": True}
    ]


def test_the_flags_name_what_is_mounted() -> None:
    changes = {"proxy.tls": {"secretName": "web"}, "proxy.auth": {"apiKeys": {"secretName": "tenants"}}}
    found, spec = settings(changes), pod(changes)
    tls, keys = (Path(mount["mountPath"]) for mount in spec["containers"][0]["volumeMounts"])
    files = [item["path"] for item in spec["volumes"][0]["secret"]["items"]]
    assert [found.tls_certificate, found.tls_key] == [tls / file for file in files]
    assert found.api_keys == keys


def test_probes_need_no_certificate() -> None:
    plain, secured = (pod(changes)["containers"][0] for changes in ({}, {"proxy.tls": {"secretName": "web"}}))
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert secured[probe] == plain[probe]
        assert secured[probe]["httpGet"]["port"] == "admin"
    assert {port["name"]: port["containerPort"] for port in secured["ports"]} == {"https": 8000, "admin": 9090}


def test_no_secret_no_volume() -> None:
    spec = pod({})
    assert "volumes" not in spec
    assert "volumeMounts" not in spec["containers"][0]


def test_pod_template() -> None:
    template = {"metadata": {"labels": {"epd.dev/name": "x", "a": "b"}}, "spec": {"priorityClassName": "high"}}
    found = proxy_deployment(epd({"proxy.podTemplate": template}), CONTEXT)["spec"]["template"]
    assert found["metadata"]["labels"]["epd.dev/name"] == "qwen-vl"
    assert found["metadata"]["labels"]["a"] == "b"
    assert found["spec"]["priorityClassName"] == "high"


@pytest.mark.parametrize("path", ["encode.replicas", "encode.port"])
def test_roles_change_nothing(path: str) -> None:
    assert proxy_deployment(epd({path: 9}), CONTEXT) == proxy_deployment(epd(), CONTEXT)
