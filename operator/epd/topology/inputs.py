"""Hashes of the user's inputs that feed one role's pods, or the proxy's. Pure, and the same in every version.

While a role's is unchanged, the controller applies what an earlier version of this operator rendered, so that an
upgrade alone restarts no engine. That of the proxy tells whether a paused object's proxy is as its spec says. Fields at
their default are left out: a field that a later version adds changes no hash.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel

from epd.api.names import Role
from epd.api.types import ConnectorKind, EPDDeployment, Spec
from epd.topology.canonical import digest
from epd.topology.containers import containers
from epd.topology.roles import role_spec_of, roles_of

_HASH_LENGTH: Final = 16
"""64 bits: two revisions of one object never collide by accident."""

_ROLE_FIELDS_OUTSIDE_THE_POD: Final = {"replicas", "scaling", "rolling_update"}


def _given(
    model: BaseModel, *, include: set[str] | None = None, exclude: set[str] | dict[str, set[str]] | None = None
) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_defaults=True, include=include, exclude=exclude)


def _cache_inputs(epd: EPDDeployment) -> dict[str, Any] | None:
    """Of a claim to make only the access modes reach the pods: they decide whether all share one node."""
    cache = epd.spec.encoder_cache
    if cache is None:
        return None
    inputs = _given(cache, exclude={"reclaim_policy", "volume", "connector", "garbage_collection"})
    if cache.connector is not ConnectorKind.EXAMPLE:  # the default of the first version, whose hashes stand
        inputs["connector"] = str(cache.connector)
    if cache.connector is ConnectorKind.MANAGED:
        inputs["minIdle"] = _given(cache.garbage_collection, include={"min_idle"})
    if cache.volume and cache.volume.volume_claim_template:
        inputs["accessModes"] = cache.volume.volume_claim_template.spec.get("accessModes")
    if cache.volume and cache.volume.persistent_volume_claim:
        inputs["claim"] = _given(cache.volume.persistent_volume_claim)
    return inputs


def _drains_by_request(role: Role, spec: Spec) -> bool:
    return role is not Role.ENCODE and role_spec_of(spec, role).drain_timeout is None


def role_inputs(epd: EPDDeployment, role: Role) -> str:
    """Return the hash of the user's inputs of one role's pods, in 16 hex digits.

    Args and env of all roles count for each: they are part of the model version that labels every pod, and which of
    them are harmless is this version's judgement, which must not enter.
    """
    spec = epd.spec
    roles = dict(roles_of(spec))
    inputs = {
        "name": epd.metadata.name,
        "role": str(role),
        "spec": _given(roles[role], exclude=_ROLE_FIELDS_OUTSIDE_THE_POD),
        "containers": {place: [given.args, given.env, given.env_from] for place, given in containers(spec).items()},
        "model": _given(spec.model),
        "engine": _given(spec.engine, exclude={"tls": {"server_name"}}),  # the proxy alone looks for the name
        "imagePullSecrets": [secret.name for secret in spec.image_pull_secrets],
        "encoderCache": _cache_inputs(epd),
        "securityContext": _given(spec, include={"security_context"}),
        "restartedAt": spec.restarted_at,
        "media": _given(spec.proxy.media, include={"allowed_domains"}),
        "requestTimeout": _given(spec.proxy.timeouts, include={"request"}) if _drains_by_request(role, spec) else None,
    }
    return digest(inputs, length=_HASH_LENGTH)


def proxy_inputs(epd: EPDDeployment) -> str:
    """Return the hash of the user's inputs of the proxy's pods, in 16 hex digits."""
    spec = epd.spec
    inputs = {
        "name": epd.metadata.name,
        "spec": _given(spec.proxy, exclude={"replicas", "scaling", "service"}),
        "roles": [str(role) for role, _ in roles_of(spec)],
        "engineTLS": _given(spec.engine, include={"tls"}),
        "encoderCache": _proxy_cache_inputs(spec),
        "imagePullSecrets": [secret.name for secret in spec.image_pull_secrets],
        "platformIds": "runAsUser" not in spec.security_context,
        "suspend": spec.suspend,
    }
    return digest(inputs, length=_HASH_LENGTH)


def _proxy_cache_inputs(spec: Spec) -> dict[str, Any] | None:
    cache = spec.encoder_cache
    if cache is None:
        return None
    managed = cache.connector is ConnectorKind.MANAGED and spec.encode is not None
    stamps = _given(cache.garbage_collection, include={"min_idle"}) if managed else {}
    return _given(cache, include={"hash_algorithm"}) | stamps | {"managed": managed}
