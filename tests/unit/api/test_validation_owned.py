"""Fields that are the operator's own: found wherever they are set, with what to use instead."""

from __future__ import annotations

from typing import Any

import pytest

from epd.api.names import Reason
from epd.api.validation import Problem
from unit.api.specs import container, found


def owned(path: str, message: str) -> tuple[Problem, ...]:
    return (Problem(reason=Reason.OWNED_FIELD, path=path, message=message),)


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
