from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from epd.api.names import Role
from epd.manifests.proxy_flags import hint_seconds, proxy_flags
from epd.proxy.access_log import AccessPolicy
from epd.proxy.affinity import Affinity
from epd.proxy.connectors import Connector
from epd.proxy.isolation import TenantIsolation
from epd.proxy.settings import EncoderFailurePolicy, EngineTls, Limits
from unit.manifests.proxy_settings import settings
from unit.topology.objects import ABSENT, epd

CUSTOM = {"encoderCache.connector": "Custom", "encoderCache.custom": {"module": "a", "class": "B"}}
MIN_IDLE = "encoderCache.garbageCollection.minIdle"


def test_the_proxy_reads_what_the_spec_says() -> None:
    found = settings(
        {
            "encoderCache.hashAlgorithm": "SHA256",
            "proxy.encoderFailurePolicy": "Fail",
            "proxy.affinity": "Prefix",
            "proxy.timeouts": {"request": "1h", "encode": "5m", "idle": "30s", "queue": "1m"},
            "proxy.limits": {"maxInFlight": 7, "maxFallbackEncodes": 0, "maxPerEngine": 5, "maxQueued": 0}
            | {"maxConnections": 9},
            "proxy.media": {"allowedDomains": ["a.example", "b.example"], "maxBodySize": "1Gi"},
            "proxy.cors": {"allowedOrigins": ["https://A.example", "http://localhost:3000"]},
            "suspend": True,
        }
    )
    assert (found.namespace, found.epd, found.roles) == ("ai", "qwen-vl", {Role.ENCODE, Role.PREFILL_DECODE})
    assert (found.port, found.admin_port, found.suspended) == (8000, 9090, True)
    assert found.policy is EncoderFailurePolicy.FAIL
    assert found.affinity is Affinity.PREFIX
    assert (found.limits.request_seconds, found.limits.encode_seconds, found.limits.idle_seconds) == (3600, 300, 30)
    assert (found.limits.max_in_flight, found.limits.max_fallback_encodes) == (7, 0)
    assert (found.limits.max_in_flight_per_engine, found.limits.queue) == (5, 0)
    assert (found.limits.queue_seconds, found.limits.max_connections) == (60, 9)
    assert found.limits.max_body_bytes == 2**30
    assert found.media.allowed_domains == {"a.example", "b.example"}
    assert found.allowed_origins == {"https://a.example", "http://localhost:3000"}
    assert str(found.media.hash_algorithm) == "SHA256"
    assert found.drain.timeout_seconds == 3600


def test_the_defaults_are_the_proxys_own() -> None:
    found = settings({})
    assert found.limits == Limits()
    assert found.affinity is Affinity.NONE
    assert (found.tls_certificate, found.tls_key, found.api_keys) == (None, None, None)
    assert found.tenant_isolation is TenantIsolation.SHARED
    assert not found.media.ignores_priority
    assert found.allowed_origins == frozenset()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, AccessPolicy()),
        ({"policy": "Errors"}, AccessPolicy(errors=True)),
        ({"policy": "None"}, AccessPolicy(errors=False)),
        ({"policy": "All"}, AccessPolicy(rate=1)),
        ({"samplePercent": 1}, AccessPolicy(rate=0.01)),
        ({"samplePercent": 100}, AccessPolicy(rate=1)),
    ],
)
def test_what_is_logged(given: dict[str, Any], expected: AccessPolicy) -> None:
    assert settings({"proxy.accessLog": given}).access_log == expected


def test_defaults_and_aggregated() -> None:
    found = settings({"encode": ABSENT, "encoderCache": ABSENT})
    assert found.roles == {Role.PREFILL_DECODE}
    assert found.media.allowed_domains == frozenset()
    assert not found.suspended


def test_tenants() -> None:
    found = settings(
        {
            "proxy.auth": {"apiKeys": {"secretName": "tenants"}, "tenantIsolation": "Salted"}
            | {"requestPriority": "Ignore"},
            "proxy.limits.maxPerTenant": 3,
        }
    )
    assert found.api_keys == Path("/var/lib/epd/api-keys")
    assert found.tenant_isolation is TenantIsolation.SALTED
    assert found.limits.max_in_flight_per_tenant == 3
    assert found.media.ignores_priority


@pytest.mark.parametrize(
    ("name", "expected"), [({}, "qwen-vl-engine.ai.svc"), ({"serverName": "engine.example"}, "engine.example")]
)
def test_whom_to_believe_that_it_is_an_engine(name: dict[str, str], expected: str) -> None:
    assert settings({"engine.tls": {"secretName": "engines"} | name}).engine_tls == EngineTls(
        pods=True, ca=Path("/var/lib/epd/engine-ca/ca.crt"), server_name=expected
    )
    assert settings({}).engine_tls is None


@pytest.mark.parametrize(
    ("changes", "connector", "hints", "rewrite"),
    [
        # 3/4 of 30m, without the 2m of an encoder and the 10m of a request
        ({}, Connector.MANAGED, 630, True),
        ({"encoderCache.connector": "Example"}, Connector.EXAMPLE, 0, False),
        (CUSTOM, Connector.EXAMPLE, 0, False),
        # nothing is primed: what the proxy takes for granted without being told
        ({"encode": ABSENT}, Connector.EXAMPLE, 0, False),
        ({"encode": ABSENT, "encoderCache": ABSENT}, Connector.EXAMPLE, 0, False),
    ],
)
def test_what_requests_share(changes: dict[str, Any], connector: Connector, hints: int, rewrite: bool) -> None:
    found = settings(changes)
    assert (found.connector, found.hint_seconds, found.rewrite) == (connector, hints, rewrite)


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({MIN_IDLE: "1h"}, 45 * 60 - 2 * 60 - 10 * 60),
        ({"proxy.timeouts": {"request": "1m", "encode": "30s"}}, 1350 - 90),
        ({MIN_IDLE: "16m"}, 0),
        ({MIN_IDLE: "10s"}, 0),
        # these may change without a new proxy
        ({"encoderCache.garbageCollection.enabled": False}, 630),
        ({"encoderCache.garbageCollection.dryRun": True}, 630),
        ({"encoderCache.garbageCollection.entryTTL": "72h"}, 630),
    ],
)
def test_a_hint_ends_before_the_collector_may_delete(changes: dict[str, Any], seconds: int) -> None:
    assert hint_seconds(epd(changes).spec) == seconds
    assert ("--hint-seconds" in " ".join(proxy_flags(epd(changes)))) is (seconds > 0)
