from __future__ import annotations

from typing import Any

import pytest

from epd.api import names
from epd.api.names import Role
from epd.manifests import Context
from epd.manifests.connector_configmap import connector_name
from epd.manifests.role_deployment import pod_template, role_deployment
from epd.topology.inputs import role_inputs
from unit.topology.objects import ABSENT, epd

CONTEXT = Context(operator_image="op:1")
E, PD = Role.ENCODE, Role.PREFILL_DECODE
RWO: dict[str, Any] = {"encoderCache.volume.volumeClaimTemplate.spec.accessModes": ["ReadWriteOnce"]}


def pod(changes: dict[str, Any], role: Role = PD) -> dict[str, Any]:
    spec: dict[str, Any] = pod_template(epd(changes), role, CONTEXT)["spec"]
    return spec


def engine(changes: dict[str, Any], role: Role = PD) -> dict[str, Any]:
    containers = {container["name"]: container for container in pod(changes, role)["containers"]}
    found: dict[str, Any] = containers[names.ENGINE_CONTAINER]
    return found


def volumes(changes: dict[str, Any]) -> dict[str, tuple[Any, str, bool]]:
    """Source, mount path with sub-path, and whether it is read-only, by name."""
    sources = {
        volume.pop("name"): next(iter(volume.values()))
        for volume in [dict(volume) for volume in pod(changes)["volumes"]]
    }
    return {
        mount["name"]: (
            sources[mount["name"]],
            f"{mount['mountPath']}:{mount.get('subPath', '')}",
            mount.get("readOnly", False),
        )
        for mount in engine(changes)["volumeMounts"]
    }


def test_name_labels_and_selector() -> None:
    given = epd()
    child = role_deployment(given, PD, CONTEXT)
    metadata = child["metadata"]
    assert metadata["name"] == "qwen-vl-prefilldecode"
    assert metadata["annotations"] == {"epd.dev/inputs": role_inputs(given, PD)}
    assert child["spec"]["selector"]["matchLabels"] == {"epd.dev/name": "qwen-vl", "llm-d.ai/role": "prefill-decode"}
    assert child["spec"]["selector"]["matchLabels"].items() <= child["spec"]["template"]["metadata"]["labels"].items()
    assert metadata["labels"] == child["spec"]["template"]["metadata"]["labels"]


@pytest.mark.parametrize(
    ("changes", "replicas"),
    [
        ({}, 4),
        ({"prefillDecode.replicas": ABSENT}, 1),
        ({"prefillDecode.replicas": ABSENT, "prefillDecode.scaling": {"mode": "External"}}, None),
        ({"suspend": True}, 0),
    ],
)
def test_replicas(changes: dict[str, Any], replicas: int | None) -> None:
    assert role_deployment(epd(changes), PD, CONTEXT)["spec"].get("replicas") == replicas


def test_times_follow_from_start_and_drain() -> None:
    changes = {"prefillDecode.startupTimeout": "10m1s", "prefillDecode.drainTimeout": "100s"}
    spec, container = role_deployment(epd(changes), PD, CONTEXT)["spec"], engine(changes)
    assert pod(changes)["terminationGracePeriodSeconds"] == 5 + 100 + 10
    assert container["lifecycle"] == {"preStop": {"sleep": {"seconds": 5}}}
    assert container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"] == 605
    assert spec["progressDeadlineSeconds"] == 601 + 115 + 600
    assert spec["minReadySeconds"] == 5


def test_strategy() -> None:
    assert role_deployment(epd(), PD, CONTEXT)["spec"]["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
    }


def test_restricted_pod_security() -> None:
    spec, container = pod({}), engine({})
    assert spec["securityContext"] == {
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "fsGroup": 1000,
        "fsGroupChangePolicy": "OnRootMismatch",
    }
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)
    assert spec["serviceAccountName"] == "qwen-vl-engine"
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)


def test_a_platform_may_assign_the_ids() -> None:
    context = pod({"securityContext": {"runAsNonRoot": True}})["securityContext"]
    assert context == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_one_user_for_all_roles_whatever_a_pod_template_says() -> None:
    changes = {"prefillDecode.podTemplate": {"spec": {"securityContext": {"runAsUser": 7, "supplementalGroups": [44]}}}}
    context = pod(changes)["securityContext"]
    assert (context["runAsUser"], context["supplementalGroups"]) == (1000, [44])
    removed = pod({"prefillDecode.podTemplate": {"spec": {"securityContext": None}}})["securityContext"]
    assert removed == {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000}


EMPTY: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"hf-cache": (EMPTY, "/var/lib/epd/hf-cache:", False)}),
        (
            {"model.source": {"huggingFace": {"cacheClaim": {"claimName": "hf", "subPath": "a"}}}},
            {"hf-cache": ({"claimName": "hf"}, "/var/lib/epd/hf-cache:a", False)},
        ),
        (
            {"model.source": {"persistentVolumeClaim": {"claimName": "weights", "subPath": "qwen"}}},
            {"model": ({"claimName": "weights"}, "/var/lib/epd/model:qwen", True)},
        ),
    ],
)
def test_volumes(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    assert volumes(changes) == {
        "shm": ({"medium": "Memory", "sizeLimit": "8Gi"}, "/dev/shm:", False),
        "tmp": (EMPTY, "/tmp:", False),
        "home": (EMPTY, "/var/lib/epd/home:", False),
        **expected,
        "encoder-cache": ({"claimName": "qwen-vl-encoder-cache"}, "/var/lib/epd/encoder-cache:", False),
        "connector": ({"name": connector_name(epd(), CONTEXT)}, "/var/lib/epd/connector/epd_connector:", True),
    }


def test_a_brought_claim_and_no_claim() -> None:
    brought = volumes({"encoderCache.volume": {"persistentVolumeClaim": {"claimName": "ec", "subPath": "a"}}})
    assert brought["encoder-cache"] == ({"claimName": "ec"}, "/var/lib/epd/encoder-cache:a", False)
    assert "encoder-cache" not in volumes({"encode": ABSENT, "encoderCache": ABSENT})


def test_only_the_managed_connector_is_mounted() -> None:
    assert "connector" not in volumes({"encoderCache.connector": "Example"})
    assert "connector" not in volumes({"encode": ABSENT, "encoderCache": ABSENT})


def affinity(changes: dict[str, Any], role: Role) -> list[Any]:
    terms: list[Any] = (
        (pod(changes, role).get("affinity") or {})
        .get("podAffinity", {})
        .get("requiredDuringSchedulingIgnoredDuringExecution", [])
    )
    return terms


@pytest.mark.parametrize("role", [E, PD])
def test_a_volume_of_one_node_holds_all_engines_together(role: Role) -> None:
    assert affinity({}, role) == []
    (term,) = affinity(RWO, role)
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["labelSelector"]["matchLabels"] == {"epd.dev/name": "qwen-vl"}


def test_the_users_affinity_stays() -> None:
    own = {"topologyKey": "zone", "labelSelector": {}}
    template = {
        "spec": {
            "affinity": {
                "nodeAffinity": {"a": 1},
                "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [own]},
            }
        }
    }
    changes = RWO | {"prefillDecode.podTemplate": template}
    assert pod(changes)["affinity"]["nodeAffinity"] == {"a": 1}
    assert affinity(changes, PD)[0] == own
    assert len(affinity(changes, PD)) == 2


def test_the_roles_pod_template_wins_over_the_engines() -> None:
    changes = {
        "engine.podTemplate": {"metadata": {"labels": {"a": "1", "b": "1"}}, "spec": {"priorityClassName": "low"}},
        "prefillDecode.podTemplate": {"metadata": {"labels": {"b": "2"}}, "spec": {"priorityClassName": "high"}},
    }
    assert pod(changes, PD)["priorityClassName"] == "high"
    assert pod(changes, E)["priorityClassName"] == "low"
    labels = pod_template(epd(changes), PD, CONTEXT)["metadata"]["labels"]
    assert (labels["a"], labels["b"]) == ("1", "2")


def test_our_labels_stand() -> None:
    changes = {"engine.podTemplate": {"metadata": {"labels": {"epd.dev/name": "x", "llm-d.ai/role": "x"}}}}
    labels = pod_template(epd(changes), PD, CONTEXT)["metadata"]["labels"]
    assert (labels["epd.dev/name"], labels["llm-d.ai/role"]) == ("qwen-vl", "prefill-decode")


def test_restarted_at_reaches_the_pods() -> None:
    annotations = pod_template(epd({"restartedAt": "now"}), PD, CONTEXT)["metadata"]["annotations"]
    assert annotations["epd.dev/restarted-at"] == "now"
    assert "epd.dev/restarted-at" not in pod_template(epd(), PD, CONTEXT)["metadata"]["annotations"]


def test_the_container() -> None:
    changes = {
        "engine.imagePullPolicy": "Never",
        "imagePullSecrets": [{"name": "s"}],
        "prefillDecode.port": 9000,
        "prefillDecode.resources": {"limits": {"nvidia.com/gpu": 1}, "requests": {"cpu": "2"}},
    }
    container = engine(changes)
    assert (container["image"], container["imagePullPolicy"]) == ("vllm/vllm-openai:v0.33.0", "Never")
    assert container["ports"] == [{"name": "http", "containerPort": 9000, "protocol": "TCP"}]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "1"}, "requests": {"cpu": "2"}}
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert pod(changes)["imagePullSecrets"] == [{"name": "s"}]
    probes = [container[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")]
    assert [probe["httpGet"] for probe in probes] == [{"path": "/health", "port": "http"}] * 3
    assert "imagePullPolicy" not in engine({})


def test_tls_has_a_port_of_its_own_name_and_probes_that_speak_it() -> None:
    changes = {"engine.tls": {"secretName": "engines"}}
    container = engine(changes)
    assert container["ports"] == [{"name": "https", "containerPort": 8000, "protocol": "TCP"}]
    probes = [container[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")]
    assert [probe["httpGet"] for probe in probes] == [{"path": "/health", "port": "https", "scheme": "HTTPS"}] * 3
    items = [{"key": "tls.crt", "path": "tls.crt"}, {"key": "tls.key", "path": "tls.key"}]
    assert volumes(changes)["engine-tls"] == (
        {"secretName": "engines", "items": items},
        "/var/lib/epd/engine-tls:",
        True,
    )
    assert "engine-tls" not in volumes({})


def test_the_flags_name_the_certificate_that_is_mounted() -> None:
    changes = {"engine.tls": {"secretName": "engines"}}
    container, (source, place, _) = engine(changes), volumes(changes)["engine-tls"]
    given = dict(zip(container["args"], container["args"][1:], strict=False))
    folder = place.removesuffix(":")
    assert [given["--ssl-certfile"], given["--ssl-keyfile"]] == [f"{folder}/{item['path']}" for item in source["items"]]
