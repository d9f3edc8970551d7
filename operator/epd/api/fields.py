"""Building blocks of the API's types: the base model, references, environment, resources, durations.

Shapes only; knows no part of `EPDDeployment`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from epd.api import shapes
from epd.api.quantity import DURATION_PATTERN

Duration = Annotated[str, Field(pattern=DURATION_PATTERN, min_length=2, max_length=18)]
JSONObject = dict[str, Any]
"""An object whose fields are not ours: kept as it is (`x-kubernetes-preserve-unknown-fields`)."""

SecretName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
PodTemplate = Annotated[JSONObject, WithJsonSchema(shapes.POD_TEMPLATE)]
IntOrPercent = Annotated[int | str, WithJsonSchema(shapes.INT_OR_PERCENT)]
Quantity = Annotated[str | int, WithJsonSchema(shapes.QUANTITY)]


class ApiModel(BaseModel):
    """camelCase on the wire, snake_case in Python, immutable."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
    )


class SecretKeyRef(ApiModel):
    """One key of a Secret in the same namespace."""

    name: str = Field(min_length=1, max_length=253)
    """Name of the Secret."""
    key: str = Field(min_length=1, max_length=253)
    """Key in the Secret, for example `token`."""


class ClaimRef(ApiModel):
    """A PersistentVolumeClaim in the same namespace, and a directory in it."""

    claim_name: str = Field(min_length=1, max_length=253)
    """Name of the PersistentVolumeClaim. Claims cannot be used from another namespace."""
    sub_path: str = Field("", max_length=1024)
    """Directory in the volume, relative and without `..`, for example `qwen`. Absent: the volume's root."""


class EnvVar(ApiModel):
    """An environment variable, as in a container."""

    name: str = Field(min_length=1, max_length=253, pattern=r"^[^=\s]+$")
    """Name of the variable."""
    value: str | None = Field(None, max_length=4096)
    """Value; `$(OTHER)` is expanded by the kubelet. Set either this or valueFrom."""
    value_from: Annotated[JSONObject, WithJsonSchema(shapes.ENV_VAR_SOURCE)] | None = None
    """Where the value comes from, as in a container: fieldRef, resourceFieldRef, configMapKeyRef or secretKeyRef."""


class LocalObjectRef(ApiModel):
    """An object of the same namespace, by name."""

    name: str = Field(min_length=1, max_length=253)
    """Name of the object."""


class Resources(ApiModel):
    """Requests and limits of a container. Quantities are strings or integers."""

    limits: Annotated[dict[str, str | int], WithJsonSchema(shapes.RESOURCE_LIST)] = Field(default_factory=dict)
    """Most that the container may use, by resource, for example `{nvidia.com/gpu: 1, memory: 64Gi}`."""
    requests: Annotated[dict[str, str | int], WithJsonSchema(shapes.RESOURCE_LIST)] = Field(default_factory=dict)
    """What the scheduler reserves, by resource, for example `{cpu: 4, memory: 32Gi}`. Default: the limits."""


Args = Annotated[list[Annotated[str, Field(max_length=4096)]], Field(max_length=256)]
Env = Annotated[
    list[EnvVar],
    Field(
        max_length=128,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    ),
]
