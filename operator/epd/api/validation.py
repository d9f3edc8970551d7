"""The second check of a spec: what CEL rules cannot see, by name and with the fix.

Abbreviated flags, podTemplates and free-form objects. Pure; quantities and the rest of a podTemplate are left to the
API server, which checks the children strictly and whose words go into the status.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from epd.api import pod_templates
from epd.api.owned import OWNED_ENV, disables_content_keys, find_owned
from epd.api.pod_templates import pod_template_problems
from epd.api.problem import Problem, invalid, owned, owned_name
from epd.api.types import ConnectorKind, EnvVar, EPDDeployment, JSONObject, RoleSpec, Spec

__all__ = ["Problem", "problems"]

_EXTRA_CONFIG: Final = "spec.encoderCache.extraConfig"
_PYTHONPATH: Final = "PYTHONPATH"
_EXAMPLE_OWNED: Final = "shared_storage_path"  # ECExampleConnector: the directory of the model version
_MANAGED_OWNED: Final = frozenset({"root", "version", "claim", "inputs", "min_idle_seconds"})
_MANAGED_SETTINGS: Final = frozenset({"local_bytes", "probe_timeout_seconds", "write_timeout_seconds", "io_threads"})
_WHOLE: Final = frozenset({"local_bytes", "io_threads"})
"""Of `epd.connector.settings`, whose keys in `ec_connector_extra_config` these are."""


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
    yield from pod_template_problems("spec.engine.podTemplate", spec.engine.pod_template, pod_templates.ENGINE)
    for path, role in roles:
        if role is not None:
            yield from _role(path, role)
    yield from _connector(spec)
    if spec.encoder_cache is not None:
        path = "spec.encoderCache.garbageCollection.podTemplate"
        yield from pod_template_problems(
            path, spec.encoder_cache.garbage_collection.pod_template, pod_templates.COLLECTOR
        )
    yield from pod_template_problems("spec.proxy.podTemplate", spec.proxy.pod_template, pod_templates.PROXY)


def _role(path: str, role: RoleSpec) -> Iterator[Problem]:
    yield from _args(f"{path}.args", role.args, role=True)
    yield from _env(f"{path}.env", role.env)
    yield from pod_template_problems(f"{path}.podTemplate", role.pod_template, pod_templates.ENGINE)


def _media_limits(limits: JSONObject) -> Iterator[Problem]:
    for kind, limit in limits.items():
        number = isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0
        if not number and not isinstance(limit, Mapping):
            yield invalid(f"spec.model.mediaLimits.{kind}", "must be a number, 0 or more, or an object with count")


def _args(path: str, args: Sequence[str], *, role: bool) -> Iterator[Problem]:
    for found in find_owned(args, role=role):
        yield owned(f"{path}[{found.index}]", f"{found.flag} {found.reason}")


def _content_keys(args: Sequence[str]) -> Iterator[Problem]:
    index = disables_content_keys(args)
    if index is not None:
        yield invalid(
            f"spec.engine.args[{index}]",
            "--mm-processor-cache-gb 0 is refused with spec.encode: without it encoders name items by request, and "
            "nothing they write is ever read; use 1 or more",
        )


def _env(path: str, variables: Sequence[EnvVar]) -> Iterator[Problem]:
    for index, variable in enumerate(variables):
        yield from owned_name(f"{path}[{index}]", variable.name, OWNED_ENV)


def _connector(spec: Spec) -> Iterator[Problem]:
    cache = spec.encoder_cache
    if cache is None:
        return
    if cache.connector is ConnectorKind.EXAMPLE and _EXAMPLE_OWNED in cache.extra_config:
        yield owned(
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
            yield owned(path, "is set by the operator from spec.encoderCache")
        elif key not in _MANAGED_SETTINGS:
            known = ", ".join(sorted(_MANAGED_SETTINGS))
            yield invalid(path, f"is no setting of connector: Managed, which has {known}")
        elif isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            yield invalid(path, "must be a number greater than 0")
        elif key in _WHOLE and value != int(value):
            yield invalid(path, "must be a whole number")


def _environments(spec: Spec) -> Iterator[tuple[str, Sequence[EnvVar]]]:
    yield "spec.engine.env", spec.engine.env
    for name, role in (("encode", spec.encode), ("prefillDecode", spec.prefill_decode)):
        if role is not None:
            yield f"spec.{name}.env", role.env


def _module_path(path: str, variables: Sequence[EnvVar]) -> Iterator[Problem]:
    """The operator puts its connector before the value, which it must know for that."""
    for index, variable in enumerate(variables):
        if variable.name == _PYTHONPATH and variable.value_from is not None:
            yield invalid(
                f"{path}[{index}].valueFrom",
                "PYTHONPATH must be given as a value with connector: Managed, whose own path the operator puts before "
                "it; install the modules in the image, or give the path as a value",
            )
