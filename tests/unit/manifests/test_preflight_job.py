from __future__ import annotations

from typing import Any

import pytest

from epd.api.names import Role
from epd.manifests.context import Context
from epd.manifests.preflight_job import preflight_job, preflight_name
from epd.manifests.role_deployment import pod_template
from unit.topology.objects import ABSENT, epd

CONTEXT = Context(operator_image="op:1", preflight=True)
GPU = {"key": "nvidia.com/gpu", "operator": "Exists"}
SPOT = {"key": "spot", "operator": "Exists"}


def pod(changes: dict[str, Any]) -> dict[str, Any]:
    (child,) = preflight_job(epd(changes), CONTEXT)
    spec: dict[str, Any] = child["spec"]["template"]["spec"]
    return spec


def test_it_checks_what_engines_mount_as_who_engines_are() -> None:
    changes = {"encoderCache.volume": {"persistentVolumeClaim": {"claimName": "ec", "subPath": "a"}}}
    spec, engine = pod(changes), pod_template(epd(changes), Role.ENCODE, CONTEXT)["spec"]
    assert spec["securityContext"] == engine["securityContext"]
    assert spec["volumes"] == [volume for volume in engine["volumes"] if volume["name"] == "encoder-cache"]
    (container,) = spec["containers"]
    (path,) = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert container["volumeMounts"] == [
        mount for mount in engine["containers"][0]["volumeMounts"] if mount["name"] == "encoder-cache"
    ]
    assert container["command"] == ["python", "-m", "epd.preflight", path]


def test_it_repeats_until_it_succeeds_and_stays() -> None:
    (child,) = preflight_job(epd(), CONTEXT)
    assert child["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert child["spec"]["backoffLimit"] > 1_000_000
    assert not {"ttlSecondsAfterFinished", "activeDeadlineSeconds"} & set(child["spec"])


def test_it_goes_where_engines_go() -> None:
    changes = {
        "engine.podTemplate": {"spec": {"tolerations": [GPU], "nodeSelector": {"a": "b"}}},
        "encode.podTemplate": {"spec": {"tolerations": [GPU, SPOT]}},
    }
    spec = pod(changes)
    assert (spec["tolerations"], spec["nodeSelector"]) == ([GPU, SPOT], {"a": "b"})
    assert not {"tolerations", "nodeSelector", "affinity"} & set(pod({}))
    rwo = pod({"encoderCache.volume.volumeClaimTemplate.spec.accessModes": ["ReadWriteOnce"]})
    assert "podAffinity" in rwo["affinity"]


def test_restricted_pod_security() -> None:
    (container,) = pod({})["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert pod({})["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    "changes",
    [
        {"encoderCache.volume": {"persistentVolumeClaim": {"claimName": "ec"}}},
        {"encoderCache.volume": {"persistentVolumeClaim": {"claimName": "qwen-vl-encoder-cache", "subPath": "a"}}},
        {"securityContext": {"runAsUser": 2000}},
        {"encode.podTemplate": {"spec": {"tolerations": [SPOT]}}},
        {"imagePullSecrets": [{"name": "s"}]},
        {"encoderCache.volume.volumeClaimTemplate.spec.accessModes": ["ReadWriteOnce"]},
    ],
)
def test_what_changes_the_template_changes_the_name(changes: dict[str, Any]) -> None:
    assert pod(changes) != pod({})
    assert preflight_name(epd(changes)) != preflight_name(epd())


@pytest.mark.parametrize("changes", [{"model.revision": "0"}, {"engine.image": "other"}, {"encode.replicas": 9}])
def test_what_does_not_changes_neither(changes: dict[str, Any]) -> None:
    assert preflight_job(epd(changes), CONTEXT) == preflight_job(epd(), CONTEXT)


def test_another_operator_has_the_same_name() -> None:
    (one,), (other,) = (preflight_job(epd(), Context(operator_image=image)) for image in "ab")
    assert one["metadata"]["name"] == other["metadata"]["name"] == preflight_name(epd())


def test_the_longest_name_is_a_label_value() -> None:
    assert len(preflight_name(epd(name="x" * 45))) == 63


def test_no_claim_no_check() -> None:
    assert preflight_job(epd({"encode": ABSENT, "encoderCache": ABSENT}), CONTEXT) == ()
