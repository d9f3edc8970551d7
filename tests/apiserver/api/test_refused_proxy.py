"""Proxies and security contexts that the API server must refuse, and the words with which it does."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.api.refusing import refused
from apiserver.server import Namespace

pytestmark = pytest.mark.apiserver


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "endless request": (
        {"spec.proxy.timeouts.request": "48h"},
        "spec.proxy.timeouts.request must be between 1s and 24h",
    ),
    "endless encode": ({"spec.proxy.timeouts.encode": "2h"}, "spec.proxy.timeouts.encode must be between 1s and 1h"),
    "endless queue": ({"spec.proxy.timeouts.queue": "2h"}, "spec.proxy.timeouts.queue must be between 1s and 1h"),
    "no connection": ({"spec.proxy.limits.maxConnections": 0}, "spec.proxy.limits.maxConnections in body should be"),
    "bodies beyond the default memory": (
        {"spec.proxy.media.maxBodySize": "257Mi"},
        "spec.proxy.media.maxBodySize must be at most a quarter of spec.proxy.resources.limits.memory (1Gi by default)",
    ),
    "bodies beyond the memory": (
        {"spec.proxy.media.maxBodySize": "1Gi", "spec.proxy.resources.limits": {"memory": "3Gi"}},
        "spec.proxy.media.maxBodySize must be at most a quarter of spec.proxy.resources.limits.memory",
    ),
    "default bodies beyond the memory": (
        {"spec.proxy.resources.limits": {"memory": "128Mi"}},
        "spec.proxy.media.maxBodySize must be at most a quarter of spec.proxy.resources.limits.memory",
    ),
    "body too large": (
        {"spec.proxy.media.maxBodySize": "2Gi"},
        "spec.proxy.media.maxBodySize must be between 1Ki and 1Gi",
    ),
    "malformed body size": (
        {"spec.proxy.media.maxBodySize": "64MB"},
        "spec.proxy.media.maxBodySize in body should match",
    ),
    "domain with a scheme": (
        {"spec.proxy.media.allowedDomains": ["https://a.b"]},
        "allowedDomains[0] in body should match",
    ),
    "a share of the whole log": (
        {"spec.proxy.accessLog": {"policy": "All", "samplePercent": 5}},
        "spec.proxy.accessLog.samplePercent goes with policy: Errors alone",
    ),
    "no share of the log": (
        {"spec.proxy.accessLog.samplePercent": 0},
        "spec.proxy.accessLog.samplePercent in body should be greater than",
    ),
    "unknown affinity": ({"spec.proxy.affinity": "Cookie"}, 'supported values: "None", "Session", "Prefix"'),
    "isolation without tenants": (
        {"spec.proxy.auth": {"tenantIsolation": "Salted"}},
        "spec.proxy.auth.tenantIsolation: Salted needs spec.proxy.auth.apiKeys: without keys there are no tenants to "
        "tell apart. Set apiKeys: {secretName: ...}, or use Shared",
    ),
    "share of a tenant without tenants": (
        {"spec.proxy.limits.maxPerTenant": 3},
        "spec.proxy.limits.maxPerTenant needs spec.proxy.auth.apiKeys",
    ),
    "unknown isolation": ({"spec.proxy.auth.tenantIsolation": "Strict"}, 'supported values: "Shared", "Salted"'),
    "keys from nowhere": ({"spec.proxy.auth.apiKeys": {}}, "spec.proxy.auth.apiKeys.secretName: Required value"),
    "certificate from nowhere": ({"spec.proxy.tls": {}}, "spec.proxy.tls.secretName: Required value"),
    "name of no Secret": ({"spec.proxy.tls.secretName": "Web_TLS"}, "spec.proxy.tls.secretName in body should match"),
    "page in place of an origin": (
        {"spec.proxy.cors.allowedOrigins": ["https://a.example.com/chat"]},
        "spec.proxy.cors.allowedOrigins[0] in body should match",
    ),
    "origin twice": (
        {"spec.proxy.cors.allowedOrigins": ["*", "*"]},
        'spec.proxy.cors.allowedOrigins[1]: Duplicate value: "*"',
    ),
    "no room at an engine": ({"spec.proxy.limits.maxPerEngine": 0}, "spec.proxy.limits.maxPerEngine in body should be"),
    "unknown policy": ({"spec.proxy.encoderFailurePolicy": "Ignore"}, 'supported values: "Fallback", "Fail"'),
    "scaler beside a number of proxies": (
        {"spec.proxy": {"replicas": 3, "scaling": {"mode": "External"}}},
        "spec.proxy.replicas must be absent when scaling.mode is External (in a Kustomize patch: replicas: null)",
    ),
    "service without a proxy": ({"spec.proxy.service.type": "ExternalName"}, 'Unsupported value: "ExternalName"'),
    "container's security in the pod's": (
        {"spec.securityContext.privileged": True},
        'unknown field "spec.securityContext.privileged"',
    ),
    "negative uid": ({"spec.securityContext": {"runAsUser": -1}}, "spec.securityContext.runAsUser in body should be"),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(default: Namespace, changes: dict[str, Any], message: str) -> None:
    assert message in refused(default, changes)
