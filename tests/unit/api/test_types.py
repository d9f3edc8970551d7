from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from epd.api.crd import STATUS_DEFAULT, openapi_schema
from epd.api.types import (
    ConnectorKind,
    Device,
    EPDDeployment,
    HashAlgorithm,
    ImagePullPolicy,
    Resources,
    ScalingMode,
    Status,
)

SMALLEST: dict[str, Any] = {
    "metadata": {"name": "demo"},
    "spec": {"model": {"name": "m"}, "engine": {"image": "i:v0.33.0"}, "prefillDecode": {}},
}


def spec(**more: Any) -> Any:
    return EPDDeployment.model_validate(SMALLEST | {"spec": SMALLEST["spec"] | more}).spec


def test_names_on_the_wire() -> None:
    model = spec(model={"name": "m", "mediaIOKwargs": {"a": 1}, "maxModelLen": 3, "servedNames": ["x"]}).model
    cache = spec(encoderCache={"connector": "Custom", "custom": {"class": "C", "module": "m"}}).encoder_cache

    assert (model.media_io_kwargs, model.max_model_len, model.served_names) == ({"a": 1}, 3, ["x"])
    assert (cache.connector, cache.custom.class_name) == (ConnectorKind.CUSTOM, "C")


def test_what_is_absent() -> None:
    smallest = spec()
    role = smallest.prefill_decode

    assert (smallest.encode, smallest.encoder_cache, smallest.model.source) == (None, None, None)
    assert (role.replicas, role.scaling.mode, role.parallelism.tensor) == (None, ScalingMode.STATIC, 1)
    assert (role.port, role.startup_timeout, role.drain_timeout, role.rolling_update) == (8000, "30m", None, None)
    assert (smallest.engine.device, smallest.engine.image_pull_policy) == (Device.AUTO, None)
    assert smallest.proxy.resources == Resources(requests={"cpu": "250m", "memory": "256Mi"}, limits={"memory": "1Gi"})
    assert smallest.security_context == {
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "fsGroup": 1000,
        "fsGroupChangePolicy": "OnRootMismatch",
    }


def test_security_context_is_taken_as_a_whole() -> None:
    assert spec(securityContext={"runAsNonRoot": True}).security_context == {"runAsNonRoot": True}


def test_a_newer_schema_is_readable() -> None:
    assert spec(
        tomorrow={"a": 1}, engine={"image": "i", "imagePullPolicy": "Never", "new": 1}
    ).engine.image_pull_policy is (ImagePullPolicy.NEVER)


def test_immutable() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        spec().paused = True


def written_defaults(schema: dict[str, Any]) -> Any:
    """What the API server makes of an empty object."""
    found = {}
    for name, child in schema.get("properties", {}).items():
        if "default" in child:
            found[name] = written_defaults(child) if child["default"] == {} else child["default"]
    return found


def test_written_and_computed_defaults_are_the_same() -> None:
    """An operator may read an object that a newer or older schema defaulted."""
    schema = openapi_schema()["properties"]["spec"]
    written = written_defaults(schema) | {
        "model": SMALLEST["spec"]["model"] | written_defaults(schema["properties"]["model"]),
        "engine": SMALLEST["spec"]["engine"] | written_defaults(schema["properties"]["engine"]),
    }
    cached = {"encoderCache": written_defaults(schema["properties"]["encoderCache"])}

    assert written["proxy"]["timeouts"] == {"request": "10m", "encode": "2m", "idle": "60s", "queue": "10s"}
    assert spec(**written) == spec()
    assert spec(**cached) == spec(encoderCache={})
    assert spec(**cached).encoder_cache.hash_algorithm is HashAlgorithm.BLAKE3


def test_the_default_status_is_a_status() -> None:
    status = Status.model_validate(STATUS_DEFAULT)

    assert [(c.type, c.status, c.reason, c.observed_generation) for c in status.conditions] == [
        ("Ready", "Unknown", "Pending", 0)
    ]
