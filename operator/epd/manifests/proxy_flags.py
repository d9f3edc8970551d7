"""The flags of the proxy, from the spec. Pure. What they mean is in `epd.proxy.flags`."""

from __future__ import annotations

from typing import Final

from epd.api import names
from epd.api.quantity import duration_seconds
from epd.api.types import (
    ConnectorKind,
    EncoderCacheSpec,
    EPDDeployment,
    ProxyAccessLog,
    RequestPriority,
    Spec,
    TenantIsolation,
)
from epd.manifests import pod
from epd.manifests.connector_configmap import is_managed
from epd.topology.roles import roles_of

DATA_PORT: Final = 8000
ADMIN_PORT: Final = 9090


def proxy_flags(epd: EPDDeployment) -> list[str]:
    """Return the flags of `epd-proxy`.

    It waits out the delay of its Service by itself, instead of a preStop: meanwhile it can tell clients to close their
    connections.
    """
    spec, proxy = epd.spec, epd.spec.proxy
    cache = spec.encoder_cache or EncoderCacheSpec()
    flags = {
        "--namespace": epd.metadata.namespace,
        "--epd": epd.metadata.name,
        "--roles": ",".join(role for role, _ in roles_of(spec)),
        "--port": str(DATA_PORT),
        "--admin-port": str(ADMIN_PORT),
        "--encoder-failure-policy": str(proxy.encoder_failure_policy),
        "--affinity": str(proxy.affinity),
        "--request-timeout": proxy.timeouts.request,
        "--encode-timeout": proxy.timeouts.encode,
        "--idle-timeout": proxy.timeouts.idle,
        "--queue-timeout": proxy.timeouts.queue,
        "--max-in-flight": str(proxy.limits.max_in_flight),
        "--max-in-flight-per-engine": str(proxy.limits.max_per_engine),
        "--queue": str(proxy.limits.max_queued),
        "--max-fallback-encodes": str(proxy.limits.max_fallback_encodes),
        "--hash-algorithm": str(cache.hash_algorithm),
        "--max-body-size": str(proxy.media.max_body_size),
        "--access-log": _access_log(proxy.access_log),
        "--drain-delay": f"{pod.PRESTOP_SECONDS}s",
        "--drain-timeout": proxy.timeouts.request,
    }
    switches = {
        "--suspended": spec.suspend,
        "--rewrite": _reads_managed(spec),
        "--engine-tls": spec.engine.tls is not None,
        "--ignore-priority": proxy.auth.request_priority is RequestPriority.IGNORE,
    }
    given = flags | _sharing(spec) | _clients(spec) | _engine_tls(epd)
    if proxy.limits.max_connections is not None:
        given["--max-connections"] = str(proxy.limits.max_connections)
    return [f"{flag}={value}" for flag, value in given.items()] + [flag for flag, on in switches.items() if on]


def hint_seconds(spec: Spec) -> int:
    """How long the proxy may count on an item being in the store after an encoder reported it; 0 for not at all.

    The collector leaves alone what was used within minIdle, of all users of a claim the longest, by age and by
    watermarks alike. Off that go the quarter of it by which a stamp of use may be old (`connector.settings`), the
    encoder's time from stamp to answer, and the time within which the last request that counts on it must have read it.
    The same where garbageCollection is off: it can be turned on without a new proxy.
    """
    if not _reads_managed(spec) or spec.encoder_cache is None:
        return 0
    kept = duration_seconds(spec.encoder_cache.garbage_collection.min_idle) * 3 // 4
    timeouts = spec.proxy.timeouts
    return max(0, kept - duration_seconds(timeouts.encode) - duration_seconds(timeouts.request))


def _sharing(spec: Spec) -> dict[str, str]:
    """What requests may share of each other's encoding."""
    if spec.encode is None or spec.encoder_cache is None:
        return {}
    # Of a connector of the user's own nothing is known: as of files that anybody may delete.
    shared = ConnectorKind.MANAGED if is_managed(spec) else ConnectorKind.EXAMPLE
    hints = hint_seconds(spec)
    return {"--connector": str(shared)} | ({"--hint-seconds": str(hints)} if hints else {})


def _clients(spec: Spec) -> dict[str, str]:
    """Who may send what."""
    proxy, flags = spec.proxy, {}
    if proxy.tls is not None:
        flags["--tls-cert"] = f"{names.PROXY_TLS_PATH}/{names.TLS_CERTIFICATE}"
        flags["--tls-key"] = f"{names.PROXY_TLS_PATH}/{names.TLS_KEY}"
    if proxy.auth.api_keys is not None:
        flags["--api-keys"] = names.PROXY_API_KEYS_PATH
    if proxy.auth.tenant_isolation is not TenantIsolation.SHARED:
        flags["--tenant-isolation"] = str(proxy.auth.tenant_isolation)
    if proxy.limits.max_per_tenant is not None:
        flags["--max-in-flight-per-tenant"] = str(proxy.limits.max_per_tenant)
    if proxy.cors.allowed_origins:
        flags["--allowed-origins"] = ",".join(proxy.cors.allowed_origins)
    if proxy.media.allowed_domains:
        flags["--allowed-media-domains"] = ",".join(proxy.media.allowed_domains)
    return flags


def _engine_tls(epd: EPDDeployment) -> dict[str, str]:
    """Whom to believe that it is an engine."""
    if (tls := epd.spec.engine.tls) is None:
        return {}
    name = tls.server_name or names.engine_server(epd.metadata.name, epd.metadata.namespace)
    return {"--engine-ca": f"{names.PROXY_ENGINE_CA_PATH}/{names.TLS_CA}", "--engine-server-name": name}


def _access_log(given: ProxyAccessLog) -> str:
    if given.sample_percent is None:
        return str(given.policy)
    return f"Sampled:{given.sample_percent / 100:g}"


def _reads_managed(spec: Spec) -> bool:
    """Only the Managed connector survives an entry that is gone; without encoders nothing stands in for media."""
    return spec.encode is not None and is_managed(spec)
