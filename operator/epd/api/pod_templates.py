"""What a podTemplate may not set, for each kind of pod, by name and with what to use instead.

The rest of a podTemplate is left to the API server, which checks the children strictly. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

from epd.api import names
from epd.api.owned import OWNED_ENV
from epd.api.problem import Problem, invalid, owned, owned_name
from epd.api.types import JSONObject

_OWNED_LABELS: Final = frozenset(
    {
        names.LABEL_NAME,
        names.LABEL_INSTANCE,
        names.LABEL_COMPONENT,
        names.LABEL_PART_OF,
        names.LABEL_MANAGED_BY,
        names.LABEL_ROLE,
    }
)
_OWNED_PREFIX: Final = f"{names.GROUP}/"

_POD_FIELDS: Final = {
    "serviceAccountName": "is set by the operator, which grants each component no more than it needs",
    "serviceAccount": "is set by the operator, which grants each component no more than it needs",
    "restartPolicy": "is always Always in a Deployment",
}
_ONE_USER: Final = "is set by the operator, since all roles share files; use spec.securityContext"
_ENGINE_POD_FIELDS: Final = _POD_FIELDS | {
    "terminationGracePeriodSeconds": "follows from drainTimeout of the role; set that",
    "securityContext.runAsUser": _ONE_USER,
    "securityContext.runAsGroup": _ONE_USER,
    "securityContext.fsGroup": _ONE_USER,
}
_PROXY_POD_FIELDS: Final = _POD_FIELDS | {
    "terminationGracePeriodSeconds": "follows from spec.proxy.timeouts.request; set that",
}
_ENGINE_CONTAINER_FIELDS: Final = {
    "image": "is set by the operator; use spec.engine.image",
    "command": "is set by the operator; use args of spec.engine or of the role",
    "args": "is set by the operator; use args of spec.engine or of the role",
    "ports": "is set by the operator; use port of the role",
    "resources.limits": "is set by the operator, whose flags depend on it; use resources of the role",
    "resources.requests": "is set by the operator, whose flags depend on it; use resources of the role",
    "securityContext.runAsUser": _ONE_USER,
    "securityContext.runAsGroup": _ONE_USER,
}
_CACHE_VOLUME: Final = "is set by the operator; use spec.encoderCache.volume"
_MODEL_VOLUME: Final = "is set by the operator; use spec.model.source.persistentVolumeClaim"
_ENGINE_TLS_VOLUME: Final = "is set by the operator; use spec.engine.tls"
_CONNECTOR_VOLUME: Final = "is set by the operator: it holds the connector that belongs to its release"
_ENGINE_VOLUMES: Final = {
    names.ENCODER_CACHE_VOLUME: _CACHE_VOLUME,
    names.MODEL_VOLUME: _MODEL_VOLUME,
    names.CONNECTOR_VOLUME: _CONNECTOR_VOLUME,
    names.ENGINE_TLS_VOLUME: _ENGINE_TLS_VOLUME,
}
_ENGINE_MOUNTS: Final = {
    names.ENCODER_CACHE_PATH: _CACHE_VOLUME,
    names.MODEL_PATH: _MODEL_VOLUME,
    names.CONNECTOR_PATH: _CONNECTOR_VOLUME,
    names.ENGINE_TLS_PATH: _ENGINE_TLS_VOLUME,
}
_COLLECTOR_POD_FIELDS: Final = _POD_FIELDS | {
    "securityContext.runAsUser": _ONE_USER,
    "securityContext.runAsGroup": _ONE_USER,
    "securityContext.fsGroup": _ONE_USER,
}
_COLLECTOR_RESOURCES: Final = "is set by the operator; use spec.encoderCache.garbageCollection.resources"
_COLLECTOR_CONTAINER_FIELDS: Final = {
    "image": "is set by the operator: the collector belongs to its release",
    "command": "is set by the operator from spec.encoderCache",
    "args": "is set by the operator from spec.encoderCache",
    "ports": "is set by the operator, which asks there for the store's state",
    "resources.limits": _COLLECTOR_RESOURCES,
    "resources.requests": _COLLECTOR_RESOURCES,
    "securityContext.runAsUser": _ONE_USER,
    "securityContext.runAsGroup": _ONE_USER,
}
_COLLECTOR_VOLUMES: Final = {names.ENCODER_CACHE_VOLUME: _CACHE_VOLUME}
_COLLECTOR_MOUNTS: Final = {names.ENCODER_CACHE_PATH: _CACHE_VOLUME}
_PROXY_CONTAINER_FIELDS: Final = {
    "image": "is set by the operator: the proxy belongs to its release",
    "command": "is set by the operator from spec.proxy",
    "args": "is set by the operator from spec.proxy",
    "ports": "is set by the operator; use spec.proxy.service.port",
}
_TLS_VOLUME: Final = "is set by the operator; use spec.proxy.tls"
_API_KEYS_VOLUME: Final = "is set by the operator; use spec.proxy.auth.apiKeys"
_PROXY_VOLUMES: Final = {
    names.PROXY_TLS_VOLUME: _TLS_VOLUME,
    names.PROXY_API_KEYS_VOLUME: _API_KEYS_VOLUME,
    names.PROXY_ENGINE_CA_VOLUME: _ENGINE_TLS_VOLUME,
}
_PROXY_MOUNTS: Final = {
    names.PROXY_TLS_PATH: _TLS_VOLUME,
    names.PROXY_API_KEYS_PATH: _API_KEYS_VOLUME,
    names.PROXY_ENGINE_CA_PATH: _ENGINE_TLS_VOLUME,
}


@dataclass(frozen=True, kw_only=True)
class PodTemplateRules:
    """What the podTemplate of one kind of pod may not set: field, name or mount path -> why."""

    pod: Mapping[str, str]
    container: str
    container_fields: Mapping[str, str]
    env: Mapping[str, str] = field(default_factory=dict)
    volumes: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)


ENGINE: Final = PodTemplateRules(
    pod=_ENGINE_POD_FIELDS,
    container=names.ENGINE_CONTAINER,
    container_fields=_ENGINE_CONTAINER_FIELDS,
    env=OWNED_ENV | {"PYTHONPATH": "is set by the operator; use env of spec.engine or of the role"},
    volumes=_ENGINE_VOLUMES,
    mounts=_ENGINE_MOUNTS,
)
COLLECTOR: Final = PodTemplateRules(
    pod=_COLLECTOR_POD_FIELDS,
    container=names.COLLECTOR_CONTAINER,
    container_fields=_COLLECTOR_CONTAINER_FIELDS,
    volumes=_COLLECTOR_VOLUMES,
    mounts=_COLLECTOR_MOUNTS,
)
PROXY: Final = PodTemplateRules(
    pod=_PROXY_POD_FIELDS,
    container=names.PROXY_CONTAINER,
    container_fields=_PROXY_CONTAINER_FIELDS,
    volumes=_PROXY_VOLUMES,
    mounts=_PROXY_MOUNTS,
)


def pod_template_problems(path: str, template: JSONObject, rules: PodTemplateRules) -> Iterator[Problem]:
    """Find what the podTemplate at `path` sets and may not."""
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    for kind in ("labels", "annotations"):
        for key in metadata.get(kind) or {}:
            if key in _OWNED_LABELS or key.startswith(_OWNED_PREFIX):
                yield owned(f"{path}.metadata.{kind}[{key}]", "is set by the operator; use a key of your own")
    yield from _fields(f"{path}.spec", spec, rules.pod)

    def container(where: str, given: Mapping[str, Any]) -> Iterator[Problem]:
        if given.get("name") == rules.container:
            yield from _container(where, given, rules)

    def volume(where: str, given: Mapping[str, Any]) -> Iterator[Problem]:
        yield from owned_name(where, str(given.get("name")), rules.volumes)

    yield from _each(f"{path}.spec.containers", spec.get("containers"), "containers", container)
    yield from _each(f"{path}.spec.volumes", spec.get("volumes"), "volumes", volume)


def _container(path: str, container: Mapping[str, Any], rules: PodTemplateRules) -> Iterator[Problem]:
    def variable(where: str, given: Mapping[str, Any]) -> Iterator[Problem]:
        yield from owned_name(where, str(given.get("name")), rules.env)

    def mount(where: str, given: Mapping[str, Any]) -> Iterator[Problem]:
        for place, why in rules.mounts.items():
            if PurePosixPath(str(given.get("mountPath"))).is_relative_to(place):
                yield owned(where, f"{place} {why}")

    yield from _fields(path, container, rules.container_fields)
    yield from _each(f"{path}.env", container.get("env"), "variables", variable)
    yield from _each(f"{path}.volumeMounts", container.get("volumeMounts"), "mounts", mount)


def _fields(path: str, value: Mapping[str, Any], table: Mapping[str, str]) -> Iterator[Problem]:
    for name, why in table.items():
        if _has(value, name):
            yield owned(f"{path}.{name}", why)


def _has(value: object, name: str) -> bool:
    """Tell whether an object has a field, such as `securityContext.runAsUser`, be it null."""
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return False
        value = value[part]
    return True


def _each(
    path: str, value: object, what: str, check: Callable[[str, Mapping[str, Any]], Iterator[Problem]]
) -> Iterator[Problem]:
    """What `check` finds in the items of a list of objects."""
    items = value or []
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        yield invalid(path, f"must be a list of {what}")
        return
    for index, item in enumerate(items):
        yield from check(f"{path}[{index}]", item)
