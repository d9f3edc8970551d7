from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest

from epd.api.names import Reason
from epd.api.types import EPDDeployment
from epd.api.validation import _MANAGED_OWNED, _MANAGED_SETTINGS, Problem, problems
from epd.connector.settings import Settings

BASE: dict[str, Any] = {
    "metadata": {"name": "demo"},
    "spec": {
        "model": {"name": "m"},
        "engine": {"image": "vllm/vllm-openai:v0.33.0"},
        "encode": {},
        "prefillDecode": {},
        "encoderCache": {"volume": {"persistentVolumeClaim": {"claimName": "ec"}}},
    },
}


def found(path: str, value: Any) -> tuple[Problem, ...]:
    manifest = copy.deepcopy(BASE)
    *parents, last = path.split(".")
    target = manifest
    for parent in parents:
        target = target.setdefault(parent, {})
    target[last] = value
    return problems(EPDDeployment.model_validate(manifest))


def owned(path: str, message: str) -> tuple[Problem, ...]:
    return (Problem(reason=Reason.OWNED_FIELD, path=path, message=message),)


def container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "sidecar", "image": "x", "args": ["-v"]}, {"name": "engine", **fields}]}}


def test_nothing() -> None:
    assert problems(EPDDeployment.model_validate(BASE)) == ()


OWNED: dict[str, tuple[str, Any, str, str]] = {
    "abbreviated flag": (
        "spec.engine.args",
        ["--seed", "1", "--ec-transfer={}"],
        "spec.engine.args[2]",
        "--ec-transfer-config is set by the operator from spec.encoderCache; use spec.encoderCache.extraConfig",
    ),
    "flag of a role": (
        "spec.prefillDecode.args",
        ["--tokenizer-m", "auto"],
        "spec.prefillDecode.args[0]",
        "--tokenizer-mode changes cache keys or embeddings: all roles must agree on it; use spec.engine.args",
    ),
    "variable": (
        "spec.engine.env",
        [{"name": "A"}, {"name": "HF_HUB_OFFLINE", "value": "1"}],
        "spec.engine.env[1]",
        "HF_HUB_OFFLINE is set by the operator; use spec.model.source.huggingFace.offline",
    ),
    "variable of a role": (
        "spec.encode.env",
        [{"name": "HOME", "value": "/x"}],
        "spec.encode.env[0]",
        "HOME is set by the operator to a writable place; mount a volume there with podTemplate",
    ),
    "variable of a podTemplate": (
        "spec.encode.podTemplate",
        container(env=[{"name": "HF_TOKEN", "value": "x"}]),
        "spec.encode.podTemplate.spec.containers[1].env[0]",
        "HF_TOKEN is set by the operator; use spec.model.source.huggingFace.tokenSecretRef",
    ),
    "image": (
        "spec.engine.podTemplate",
        container(image="x"),
        "spec.engine.podTemplate.spec.containers[1].image",
        "is set by the operator; use spec.engine.image",
    ),
    "command": (
        "spec.engine.podTemplate",
        container(command=["sh"]),
        "spec.engine.podTemplate.spec.containers[1].command",
        "is set by the operator; use args of spec.engine or of the role",
    ),
    "args": (
        "spec.engine.podTemplate",
        container(args=[]),
        "spec.engine.podTemplate.spec.containers[1].args",
        "is set by the operator; use args of spec.engine or of the role",
    ),
    "ports": (
        "spec.prefillDecode.podTemplate",
        container(ports=[]),
        "spec.prefillDecode.podTemplate.spec.containers[1].ports",
        "is set by the operator; use port of the role",
    ),
    "limits": (
        "spec.engine.podTemplate",
        container(resources={"limits": {"nvidia.com/gpu": 1}}),
        "spec.engine.podTemplate.spec.containers[1].resources.limits",
        "is set by the operator, whose flags depend on it; use resources of the role",
    ),
    "requests": (
        "spec.encode.podTemplate",
        container(resources={"requests": {"cpu": 1}}),
        "spec.encode.podTemplate.spec.containers[1].resources.requests",
        "is set by the operator, whose flags depend on it; use resources of the role",
    ),
    "user of the pod": (
        "spec.encode.podTemplate",
        {"spec": {"securityContext": {"runAsUser": 7}}},
        "spec.encode.podTemplate.spec.securityContext.runAsUser",
        "is set by the operator, since all roles share files; use spec.securityContext",
    ),
    "group of the pod's volumes": (
        "spec.engine.podTemplate",
        {"spec": {"securityContext": {"fsGroup": None}}},
        "spec.engine.podTemplate.spec.securityContext.fsGroup",
        "is set by the operator, since all roles share files; use spec.securityContext",
    ),
    "group of the container": (
        "spec.prefillDecode.podTemplate",
        container(securityContext={"runAsGroup": 0}),
        "spec.prefillDecode.podTemplate.spec.containers[1].securityContext.runAsGroup",
        "is set by the operator, since all roles share files; use spec.securityContext",
    ),
    "volume of the cache": (
        "spec.encode.podTemplate",
        {"spec": {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "encoder-cache", "emptyDir": {}}]}},
        "spec.encode.podTemplate.spec.volumes[1]",
        "encoder-cache is set by the operator; use spec.encoderCache.volume",
    ),
    "mount in the weights": (
        "spec.encode.podTemplate",
        container(volumeMounts=[{"name": "a", "mountPath": "/a"}, {"name": "a", "mountPath": "/var/lib/epd/model/x/"}]),
        "spec.encode.podTemplate.spec.containers[1].volumeMounts[1]",
        "/var/lib/epd/model is set by the operator; use spec.model.source.persistentVolumeClaim",
    ),
    "grace": (
        "spec.encode.podTemplate",
        {"spec": {"terminationGracePeriodSeconds": 5}},
        "spec.encode.podTemplate.spec.terminationGracePeriodSeconds",
        "follows from drainTimeout of the role; set that",
    ),
    "grace of the proxy": (
        "spec.proxy.podTemplate",
        {"spec": {"terminationGracePeriodSeconds": 5}},
        "spec.proxy.podTemplate.spec.terminationGracePeriodSeconds",
        "follows from spec.proxy.timeouts.request; set that",
    ),
    "image of the proxy": (
        "spec.proxy.podTemplate",
        {"spec": {"containers": [{"name": "proxy", "image": "x"}]}},
        "spec.proxy.podTemplate.spec.containers[0].image",
        "is set by the operator: the proxy belongs to its release",
    ),
    "account": (
        "spec.engine.podTemplate",
        {"spec": {"serviceAccountName": "admin"}},
        "spec.engine.podTemplate.spec.serviceAccountName",
        "is set by the operator, which grants each component no more than it needs",
    ),
    "restart policy": (
        "spec.engine.podTemplate",
        {"spec": {"restartPolicy": "Never"}},
        "spec.engine.podTemplate.spec.restartPolicy",
        "is always Always in a Deployment",
    ),
    "label": (
        "spec.engine.podTemplate",
        {"metadata": {"labels": {"llm-d.ai/role": "decode"}}},
        "spec.engine.podTemplate.metadata.labels[llm-d.ai/role]",
        "is set by the operator; use a key of your own",
    ),
    "annotation": (
        "spec.proxy.podTemplate",
        {"metadata": {"annotations": {"epd.dev/inputs": "x"}}},
        "spec.proxy.podTemplate.metadata.annotations[epd.dev/inputs]",
        "is set by the operator; use a key of your own",
    ),
    "store": (
        "spec.encoderCache",
        {"connector": "Example", "extraConfig": {"shared_storage_path": "/tmp"}},
        "spec.encoderCache.extraConfig.shared_storage_path",
        "is set by the operator to the model version's directory on spec.encoderCache.volume",
    ),
    "root of the store": (
        "spec.encoderCache.extraConfig",
        {"root": "/tmp"},
        "spec.encoderCache.extraConfig.root",
        "is set by the operator from spec.encoderCache",
    ),
    "module path of a podTemplate": (
        "spec.encode.podTemplate",
        container(env=[{"name": "PYTHONPATH", "value": "/opt"}]),
        "spec.encode.podTemplate.spec.containers[1].env[0]",
        "PYTHONPATH is set by the operator; use env of spec.engine or of the role",
    ),
    "volume of the connector": (
        "spec.engine.podTemplate",
        {"spec": {"volumes": [{"name": "connector", "emptyDir": {}}]}},
        "spec.engine.podTemplate.spec.volumes[0]",
        "connector is set by the operator: it holds the connector that belongs to its release",
    ),
    "limits of the collector": (
        "spec.encoderCache.garbageCollection.podTemplate",
        {"spec": {"containers": [{"name": "collector", "resources": {"limits": {"memory": "1Gi"}}}]}},
        "spec.encoderCache.garbageCollection.podTemplate.spec.containers[0].resources.limits",
        "is set by the operator; use spec.encoderCache.garbageCollection.resources",
    ),
    "user of the collector": (
        "spec.encoderCache.garbageCollection.podTemplate",
        {"spec": {"securityContext": {"runAsUser": 0}}},
        "spec.encoderCache.garbageCollection.podTemplate.spec.securityContext.runAsUser",
        "is set by the operator, since all roles share files; use spec.securityContext",
    ),
}


@pytest.mark.parametrize(("path", "value", "where", "message"), OWNED.values(), ids=OWNED)
def test_owned(path: str, value: Any, where: str, message: str) -> None:
    assert found(path, value) == owned(where, message)


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
