"""Specs that are invalid or allowed, as far as the API server cannot tell."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest

from epd.api.names import Reason
from epd.api.types import EPDDeployment
from epd.api.validation import _MANAGED_OWNED, _MANAGED_SETTINGS, Problem, problems
from epd.connector.settings import Settings
from unit.api.specs import BASE, container, found


def test_nothing() -> None:
    assert problems(EPDDeployment.model_validate(BASE)) == ()


INVALID: dict[str, tuple[str, Any, str, str]] = {
    "limit": (
        "spec.model.mediaLimits",
        {"image": -1},
        "spec.model.mediaLimits.image",
        "must be a number, 0 or more, or an object with count",
    ),
    "switch as a limit": (
        "spec.model.mediaLimits",
        {"image": 3, "video": True},
        "spec.model.mediaLimits.video",
        "must be a number, 0 or more, or an object with count",
    ),
    "no content keys": (
        "spec.engine.args",
        ["--mm-processor-cache-g=0"],
        "spec.engine.args[0]",
        "--mm-processor-cache-gb 0 is refused with spec.encode: without it encoders name items by request, and nothing "
        "they write is ever read; use 1 or more",
    ),
    "no list of containers": (
        "spec.engine.podTemplate",
        {"spec": {"containers": {"name": "engine"}}},
        "spec.engine.podTemplate.spec.containers",
        "must be a list of containers",
    ),
    "no list of volumes": (
        "spec.engine.podTemplate",
        {"spec": {"volumes": ["a"]}},
        "spec.engine.podTemplate.spec.volumes",
        "must be a list of volumes",
    ),
    "no list of mounts": (
        "spec.engine.podTemplate",
        container(volumeMounts={"a": "/a"}),
        "spec.engine.podTemplate.spec.containers[1].volumeMounts",
        "must be a list of mounts",
    ),
    "no list of variables": (
        "spec.engine.podTemplate",
        container(env={"A": "1"}),
        "spec.engine.podTemplate.spec.containers[1].env",
        "must be a list of variables",
    ),
    "misspelt setting of the connector": (
        "spec.encoderCache.extraConfig",
        {"local_bytes": 1, "local_byte": 1},
        "spec.encoderCache.extraConfig.local_byte",
        "is no setting of connector: Managed, which has io_threads, local_bytes, probe_timeout_seconds, "
        "write_timeout_seconds",
    ),
    "setting that is no number": (
        "spec.encoderCache.extraConfig",
        {"local_bytes": "1Gi"},
        "spec.encoderCache.extraConfig.local_bytes",
        "must be a number greater than 0",
    ),
    "half a thread": (
        "spec.encoderCache.extraConfig",
        {"io_threads": 0.5},
        "spec.encoderCache.extraConfig.io_threads",
        "must be a whole number",
    ),
    "module path from elsewhere": (
        "spec.encode.env",
        [{"name": "PYTHONPATH", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}],
        "spec.encode.env[0].valueFrom",
        "PYTHONPATH must be given as a value with connector: Managed, whose own path the operator puts before it; "
        "install the modules in the image, or give the path as a value",
    ),
}


@pytest.mark.parametrize(("path", "value", "where", "message"), INVALID.values(), ids=INVALID)
def test_invalid(path: str, value: Any, where: str, message: str) -> None:
    assert found(path, value) == (Problem(reason=Reason.INVALID_SPEC, path=where, message=message),)


ALLOWED: dict[str, tuple[str, Any]] = {
    "limits": ("spec.model.mediaLimits", {"image": 0, "video": {"count": 1}}),
    "sidecar": ("spec.engine.podTemplate", container(volumeMounts=[], env=[{"name": "A", "value": "1"}])),
    "claim of a device": ("spec.engine.podTemplate", container(resources={"claims": [{"name": "gpu"}]})),
    "further groups": ("spec.engine.podTemplate", {"spec": {"securityContext": {"supplementalGroups": [44]}}}),
    "capabilities": ("spec.engine.podTemplate", container(securityContext={"capabilities": {"add": ["IPC_LOCK"]}})),
    "other volumes of ours": (
        "spec.engine.podTemplate",
        {"spec": {"volumes": [{"name": name, "emptyDir": {}} for name in ("shm", "tmp", "home", "hf-cache")]}},
    ),
    "place beside ours": (
        "spec.engine.podTemplate",
        container(volumeMounts=[{"name": "a", "mountPath": "/var/lib/epd/models"}]),
    ),
    "user of the proxy": (
        "spec.proxy.podTemplate",
        {"spec": {"securityContext": {"runAsUser": 7}, "volumes": [{"name": "model", "emptyDir": {}}]}},
    ),
    "empty parts": ("spec.engine.podTemplate", {"metadata": None, "spec": {"containers": None}}),
    "labels of your own": ("spec.engine.podTemplate", {"metadata": {"labels": {"app.kubernetes.io/version": "1"}}}),
    "grace of nothing of ours": ("spec.engine.podTemplate", {"spec": {"nodeSelector": {"a": "b"}}}),
    "variables of the proxy": (
        "spec.proxy.podTemplate",
        {"spec": {"containers": [{"name": "proxy", "env": [{"name": "HOME", "value": "/x"}]}]}},
    ),
    "module path": ("spec.engine.env", [{"name": "PYTHONPATH", "value": "/opt/acme"}]),
    "settings of the connector": (
        "spec.encoderCache.extraConfig",
        {"local_bytes": 2**30, "probe_timeout_seconds": 0.5, "write_timeout_seconds": 5, "io_threads": 2},
    ),
    "collector": (
        "spec.encoderCache.garbageCollection.podTemplate",
        {"spec": {"containers": [{"name": "collector", "env": [{"name": "A"}]}], "nodeSelector": {"a": "b"}}},
    ),
    "store of a connector of your own": (
        "spec.encoderCache",
        {
            "connector": "Custom",
            "custom": {"class": "C", "module": "m"},
            "extraConfig": {"shared_storage_path": "/x"},
        },
    ),
}


@pytest.mark.parametrize(("path", "value"), ALLOWED.values(), ids=ALLOWED)
def test_allowed(path: str, value: Any) -> None:
    assert found(path, value) == ()


def test_aggregated_needs_no_content_keys() -> None:
    spec = {name: value for name, value in BASE["spec"].items() if name != "encode"}
    spec["engine"] = spec["engine"] | {"args": ["--mm-processor-cache-gb", "0"]}

    assert problems(EPDDeployment.model_validate(BASE | {"spec": spec})) == ()


def test_all_of_them_in_the_order_of_the_spec() -> None:
    manifest = copy.deepcopy(BASE)
    manifest["spec"]["engine"]["args"] = ["--port", "1", "--model", "x"]
    manifest["spec"]["encode"]["env"] = [{"name": "HOME"}]
    manifest["spec"]["proxy"] = {"podTemplate": {"spec": {"restartPolicy": "Never"}}}

    assert [problem.path for problem in problems(EPDDeployment.model_validate(manifest))] == [
        "spec.engine.args[0]",
        "spec.engine.args[2]",
        "spec.encode.env[0]",
        "spec.proxy.podTemplate.spec.restartPolicy",
    ]


def test_a_module_path_from_elsewhere_without_a_connector_of_ours() -> None:
    env = [{"name": "PYTHONPATH", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}]
    spec = BASE["spec"] | {
        "engine": BASE["spec"]["engine"] | {"env": env},
        "encoderCache": BASE["spec"]["encoderCache"] | {"connector": "Example"},
    }

    assert problems(EPDDeployment.model_validate(BASE | {"spec": spec})) == ()


def test_the_connectors_settings_are_these() -> None:
    """A key that the connector gains, or that is renamed there, must be known here."""
    assert {field.name for field in dataclasses.fields(Settings)} == _MANAGED_OWNED | _MANAGED_SETTINGS
