"""All that the user puts into the engine container's args and environment, by where it is given. Pure; judges none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from epd.api.names import ENGINE_CONTAINER
from epd.api.types import EnvVar, JSONObject, Spec
from epd.topology.roles import roles_of

ENGINE: Final = "engine"
"""Where all roles get it from: `spec.engine`."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """What one place gives to the engine container."""

    args: list[str]
    env: list[JSONObject]
    env_from: list[Any]


def _engine_container(pod_template: JSONObject) -> JSONObject:
    for container in (pod_template.get("spec") or {}).get("containers") or []:
        if isinstance(container, dict) and container.get("name") == ENGINE_CONTAINER:
            return container
    return {}


def env_var(variable: EnvVar) -> JSONObject:
    """Return a variable as a container has it."""
    if variable.value_from is not None:
        return {"name": variable.name, "valueFrom": variable.value_from}
    return {"name": variable.name, "value": variable.value or ""}


def _given(args: list[str], env: list[EnvVar], pod_template: JSONObject) -> Given:
    container = _engine_container(pod_template)
    in_template = [variable for variable in container.get("env") or [] if isinstance(variable, dict)]
    return Given(args=args, env=[*map(env_var, env), *in_template], env_from=list(container.get("envFrom") or []))


def containers(spec: Spec) -> dict[str, Given]:
    """Return what each place gives, podTemplates included: `engine`, and each role by its name."""
    engine = spec.engine
    return {ENGINE: _given(engine.args, engine.env, engine.pod_template)} | {
        str(role): _given(role_spec.args, role_spec.env, role_spec.pod_template) for role, role_spec in roles_of(spec)
    }
