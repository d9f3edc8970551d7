"""The second check of a spec: what CEL rules cannot see, by name and with the fix.

Abbreviated flags, podTemplates and free-form objects. Pure; quantities and the rest of a podTemplate are left to the
API server, which checks the children strictly and whose words go into the status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

from epd.api import names
from epd.api.names import Reason
from epd.api.owned import OWNED_ENV, disables_content_keys, find_owned
from epd.api.types import ConnectorKind, EnvVar, EPDDeployment, JSONObject, RoleSpec, Spec


@dataclass(frozen=True)
class Problem:
    """One thing in a spec that must be changed by its author.

    Attributes:
        reason: `OwnedField` or `InvalidSpec`.
        path: Where it is, such as `spec.engine.args[3]`.
        message: What is wrong with it and what to do.
    """

    reason: Reason
    path: str
    message: str


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
_CONNECTOR_VOLUME: Final = "is set by the operator: it holds the connector that belongs to its release"
_ENGINE_VOLUMES: Final = {
    names.ENCODER_CACHE_VOLUME: _CACHE_VOLUME,
    names.MODEL_VOLUME: _MODEL_VOLUME,
    names.CONNECTOR_VOLUME: _CONNECTOR_VOLUME,
}
_ENGINE_MOUNTS: Final = {
    names.ENCODER_CACHE_PATH: _CACHE_VOLUME,
    names.MODEL_PATH: _MODEL_VOLUME,
    names.CONNECTOR_PATH: _CONNECTOR_VOLUME,
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

_EXTRA_CONFIG: Final = "spec.encoderCache.extraConfig"
_PYTHONPATH: Final = "PYTHONPATH"
_EXAMPLE_OWNED: Final = "shared_storage_path"  # ECExampleConnector: the directory of the model version
_MANAGED_OWNED: Final = frozenset({"root", "version", "claim", "inputs", "min_idle_seconds"})
_MANAGED_SETTINGS: Final = frozenset({"local_bytes", "probe_timeout_seconds", "write_timeout_seconds", "io_threads"})
"""Of `epd.connector.managed`, whose keys in `ec_connector_extra_config` these are."""


@dataclass(frozen=True, kw_only=True)
class _PodTemplateRules:
    """What the podTemplate of one kind of pod may not set: field, name or mount path -> why."""

    pod: Mapping[str, str]
    container: str
    container_fields: Mapping[str, str]
    env: Mapping[str, str] = field(default_factory=dict)
    volumes: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)


_ENGINE_RULES: Final = _PodTemplateRules(
    pod=_ENGINE_POD_FIELDS,
    container=names.ENGINE_CONTAINER,
    container_fields=_ENGINE_CONTAINER_FIELDS,
    env=OWNED_ENV | {_PYTHONPATH: "is set by the operator; use env of spec.engine or of the role"},
    volumes=_ENGINE_VOLUMES,
    mounts=_ENGINE_MOUNTS,
)
_COLLECTOR_RULES: Final = _PodTemplateRules(
    pod=_COLLECTOR_POD_FIELDS,
    container=names.COLLECTOR_CONTAINER,
    container_fields=_COLLECTOR_CONTAINER_FIELDS,
    volumes=_COLLECTOR_VOLUMES,
    mounts=_COLLECTOR_MOUNTS,
)
_PROXY_RULES: Final = _PodTemplateRules(
    pod=_PROXY_POD_FIELDS,
    container=names.PROXY_CONTAINER,
    container_fields=_PROXY_CONTAINER_FIELDS,
)


def problems(epd: EPDDeployment) -> tuple[Problem, ...]:
    """Return everything that the author of `epd` must change, in the order of the spec; empty if it can be run."""
    return tuple(_spec_problems(epd.spec))


def _spec_problems(spec: Spec) -> Iterator[Problem]:
    roles = [("spec.encode", spec.encode), ("spec.prefillDecode", spec.prefill_decode)]
    yield from _media_limits(spec.model.media_limits)
    yield from _args("spec.engine.args", spec.engine.args, role=False)
    if spec.encode is not None:
        yield from _content_keys(spec.engine.args)
    yield from _env("spec.engine.env", spec.engine.env)
    yield from _pod_template("spec.engine.podTemplate", spec.engine.pod_template, _ENGINE_RULES)
    for path, role in roles:
        if role is not None:
            yield from _role(path, role)
    yield from _connector(spec)
    if spec.encoder_cache is not None:
        path = "spec.encoderCache.garbageCollection.podTemplate"
        yield from _pod_template(path, spec.encoder_cache.garbage_collection.pod_template, _COLLECTOR_RULES)
    yield from _pod_template("spec.proxy.podTemplate", spec.proxy.pod_template, _PROXY_RULES)


def _role(path: str, role: RoleSpec) -> Iterator[Problem]:
    yield from _args(f"{path}.args", role.args, role=True)
    yield from _env(f"{path}.env", role.env)
    yield from _pod_template(f"{path}.podTemplate", role.pod_template, _ENGINE_RULES)


def _owned(path: str, message: str) -> Problem:
    return Problem(reason=Reason.OWNED_FIELD, path=path, message=message)


def _invalid(path: str, message: str) -> Problem:
    return Problem(reason=Reason.INVALID_SPEC, path=path, message=message)


def _media_limits(limits: JSONObject) -> Iterator[Problem]:
    for kind, limit in limits.items():
        number = isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0
        if not number and not isinstance(limit, Mapping):
            yield _invalid(f"spec.model.mediaLimits.{kind}", "must be a number, 0 or more, or an object with count")


def _args(path: str, args: Sequence[str], *, role: bool) -> Iterator[Problem]:
    for found in find_owned(args, role=role):
        yield _owned(f"{path}[{found.index}]", f"{found.flag} {found.reason}")


def _content_keys(args: Sequence[str]) -> Iterator[Problem]:
    index = disables_content_keys(args)
    if index is not None:
        yield _invalid(
            f"spec.engine.args[{index}]",
            "--mm-processor-cache-gb 0 is refused with spec.encode: without it encoders name items by request, and "
            "nothing they write is ever read; use 1 or more",
        )


def _env(path: str, variables: Sequence[EnvVar]) -> Iterator[Problem]:
    for index, variable in enumerate(variables):
        yield from _named(f"{path}[{index}]", variable.name, OWNED_ENV)


def _connector(spec: Spec) -> Iterator[Problem]:
    cache = spec.encoder_cache
    if cache is None:
        return
    if cache.connector is ConnectorKind.EXAMPLE and _EXAMPLE_OWNED in cache.extra_config:
        yield _owned(
            f"{_EXTRA_CONFIG}.{_EXAMPLE_OWNED}",
            "is set by the operator to the model version's directory on spec.encoderCache.volume",
        )
    if cache.connector is ConnectorKind.MANAGED:
        yield from _managed_settings(cache.extra_config)
        for path, env in _environments(spec):
            yield from _module_path(path, env)


def _managed_settings(given: JSONObject) -> Iterator[Problem]:
    """A misspelt setting would be ignored without a word."""
    for key, value in given.items():
        path = f"{_EXTRA_CONFIG}.{key}"
        if key in _MANAGED_OWNED:
            yield _owned(path, "is set by the operator from spec.encoderCache")
        elif key not in _MANAGED_SETTINGS:
            known = ", ".join(sorted(_MANAGED_SETTINGS))
            yield _invalid(path, f"is no setting of connector: Managed, which has {known}")
        elif isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            yield _invalid(path, "must be a number greater than 0")


def _environments(spec: Spec) -> Iterator[tuple[str, Sequence[EnvVar]]]:
    yield "spec.engine.env", spec.engine.env
    for name, role in (("encode", spec.encode), ("prefillDecode", spec.prefill_decode)):
        if role is not None:
            yield f"spec.{name}.env", role.env


def _module_path(path: str, variables: Sequence[EnvVar]) -> Iterator[Problem]:
    """The operator puts its connector before the value, which it must know for that."""
    for index, variable in enumerate(variables):
        if variable.name == _PYTHONPATH and variable.value_from is not None:
            yield _invalid(
                f"{path}[{index}].valueFrom",
                "PYTHONPATH must be given as a value with connector: Managed, whose own path the operator puts before "
                "it; install the modules in the image, or give the path as a value",
            )


def _pod_template(path: str, template: JSONObject, rules: _PodTemplateRules) -> Iterator[Problem]:
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    for kind in ("labels", "annotations"):
        for key in metadata.get(kind) or {}:
            if key in _OWNED_LABELS or key.startswith(_OWNED_PREFIX):
                yield _owned(f"{path}.metadata.{kind}[{key}]", "is set by the operator; use a key of your own")
    yield from _fields(f"{path}.spec", spec, rules.pod)

    def container(where: str, given: Mapping[str, Any]) -> Iterator[Problem]:
        if given.get("name") == rules.container:
            yield from _container(where, given, rules)

    def volume(where: str, given: Mapping[str, Any]) -> Iterator[Problem]:
        yield from _named(where, str(given.get("name")), rules.volumes)

    yield from _each(f"{path}.spec.containers", spec.get("containers"), "containers", container)
    yield from _each(f"{path}.spec.volumes", spec.get("volumes"), "volumes", volume)


def _container(path: str, container: Mapping[str, Any], rules: _PodTemplateRules) -> Iterator[Problem]:
    def variable(where: str, given: Mapping[str, Any]) -> Iterator[Problem]:
        yield from _named(where, str(given.get("name")), rules.env)

    def mount(where: str, given: Mapping[str, Any]) -> Iterator[Problem]:
        for place, why in rules.mounts.items():
            if PurePosixPath(str(given.get("mountPath"))).is_relative_to(place):
                yield _owned(where, f"{place} {why}")

    yield from _fields(path, container, rules.container_fields)
    yield from _each(f"{path}.env", container.get("env"), "variables", variable)
    yield from _each(f"{path}.volumeMounts", container.get("volumeMounts"), "mounts", mount)


def _fields(path: str, value: Mapping[str, Any], owned: Mapping[str, str]) -> Iterator[Problem]:
    for name, why in owned.items():
        if _has(value, name):
            yield _owned(f"{path}.{name}", why)


def _has(value: object, name: str) -> bool:
    """Tell whether an object has a field, such as `securityContext.runAsUser`, be it null."""
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return False
        value = value[part]
    return True


def _named(path: str, name: str, owned: Mapping[str, str]) -> Iterator[Problem]:
    if name in owned:
        yield _owned(path, f"{name} {owned[name]}")


def _each(
    path: str, value: object, what: str, check: Callable[[str, Mapping[str, Any]], Iterator[Problem]]
) -> Iterator[Problem]:
    """What `check` finds in the items of a list of objects."""
    items = value or []
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        yield _invalid(path, f"must be a list of {what}")
        return
    for index, item in enumerate(items):
        yield from check(f"{path}[{index}]", item)
