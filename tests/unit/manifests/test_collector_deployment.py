from __future__ import annotations

from typing import Any

import pytest

from epd.api import names
from epd.api.types import EPDDeployment
from epd.collector.main import build_parser
from epd.manifests import Context
from epd.manifests.collector_deployment import collector_deployment, collector_disagreement
from unit.topology.objects import epd

CONTEXT = Context(operator_image="op:1", operator_image_pull_policy="Always")
BROUGHT: dict[str, Any] = {"encoderCache.volume": {"persistentVolumeClaim": {"claimName": "ec", "subPath": "qwen"}}}
RWO: dict[str, Any] = {"encoderCache.volume.volumeClaimTemplate.spec.accessModes": ["ReadWriteOnce"]}
COLLECTION = "encoderCache.garbageCollection"
PRESSURE = {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists", "effect": "NoSchedule"}
GPU = {"key": "nvidia.com/gpu", "operator": "Exists"}
SPOT = {"key": "spot", "operator": "Exists"}


def user(name: str, created: str = "", changes: dict[str, Any] | None = None) -> EPDDeployment:
    plain = epd(BROUGHT | (changes or {}), name=name)
    metadata = plain.metadata.model_copy(update={"creation_timestamp": created, "uid": f"uid-{name}"})
    return plain.model_copy(update={"metadata": metadata})


def pod(*users: EPDDeployment, access_modes: tuple[str, ...] = ()) -> dict[str, Any]:
    child = collector_deployment(users, CONTEXT, access_modes=access_modes)
    spec: dict[str, Any] = child["spec"]["template"]["spec"]
    return spec


def container(*users: EPDDeployment) -> dict[str, Any]:
    (found,) = pod(*users)["containers"]
    assert found["name"] == names.COLLECTOR_CONTAINER
    return dict(found)


def test_one_at_a_time() -> None:
    spec = collector_deployment([epd()], CONTEXT)["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert spec["selector"] == {"matchLabels": {"epd.dev/collector": "qwen-vl-encoder-cache-collector"}}
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()


def test_what_it_runs() -> None:
    found = container(epd())
    assert (found["image"], found["imagePullPolicy"], found["command"]) == ("op:1", "Always", ["epd-collector"])
    assert found["args"] == ["--claim=qwen-vl-encoder-cache", "--root=/var/lib/epd/encoder-cache"]
    assert found["ports"] == [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]
    assert found["resources"] == {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
    assert [found[f"{kind}Probe"]["httpGet"]["path"] for kind in ("readiness", "liveness")] == ["/readyz", "/healthz"]


def test_it_mounts_the_users_directory_and_nothing_else() -> None:
    spec = pod(user("a"))
    assert spec["volumes"] == [{"name": "encoder-cache", "persistentVolumeClaim": {"claimName": "ec"}}]
    assert container(user("a"))["volumeMounts"] == [
        {"name": "encoder-cache", "mountPath": "/var/lib/epd/encoder-cache", "subPath": "qwen"}
    ]
    assert container(user("a"))["args"] == ["--claim=ec", "--root=/var/lib/epd/encoder-cache", "--sub-path=qwen"]


def test_it_tells_whose_collector_it_is() -> None:
    child = collector_deployment([user("a")], CONTEXT)
    told = {"epd.dev/claim": "ec", "epd.dev/sub-path": "qwen"}
    assert child["metadata"]["annotations"] == told
    assert told.items() <= child["spec"]["template"]["metadata"]["annotations"].items()
    assert collector_deployment([epd()], CONTEXT)["metadata"]["annotations"] == {
        "epd.dev/claim": "qwen-vl-encoder-cache"
    }


def test_it_is_owned_by_all_and_controlled_by_none() -> None:
    owners = collector_deployment([user("b", "2026-01-01"), user("a", "2026-02-01")], CONTEXT)["metadata"][
        "ownerReferences"
    ]
    assert [(o["name"], o["uid"], o["controller"], o["blockOwnerDeletion"]) for o in owners] == [
        ("b", "uid-b", False, False),
        ("a", "uid-a", False, False),
    ]


def test_the_order_of_its_users_says_nothing() -> None:
    users = [user("a", "2026-03-01"), user("b", "2026-01-01"), user("c", "2026-01-01")]
    assert collector_deployment(users, CONTEXT) == collector_deployment(users[::-1], CONTEXT)


def test_restricted_and_as_the_engines_user() -> None:
    spec, found = pod(epd()), container(epd())
    assert spec["securityContext"] == {
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "fsGroup": 1000,
        "fsGroupChangePolicy": "OnRootMismatch",
    }
    assert found["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (True, False)
    assert spec["serviceAccountName"] == "qwen-vl-encoder-cache-collector"


def test_the_oldest_users_identity_counts_and_the_others_are_told() -> None:
    old, new = user("z", "2026-01-01"), user("a", "2026-02-01", {"securityContext": {"runAsUser": 7}})
    assert pod(new, old)["securityContext"]["runAsUser"] == 1000
    assert collector_disagreement([new, old]) == (
        "a and z share the claim with different spec.securityContext; the collector runs with that of z, the oldest, "
        "and may not be able to delete what the others write. Make it the same in all."
    )
    assert collector_disagreement([old, user("a", "2026-02-01")]) is None
    assert collector_disagreement([old]) is None


def test_it_tolerates_what_engines_tolerate_and_a_full_disk() -> None:
    a = user("a", "1", {"engine.podTemplate": {"spec": {"tolerations": [GPU]}}})
    b = user("b", "2", {"encode.podTemplate": {"spec": {"tolerations": [SPOT, GPU]}}})
    assert pod(epd())["tolerations"] == [PRESSURE]
    assert pod(b, a)["tolerations"] == [GPU, SPOT, PRESSURE]
    own = user("c", "1", {"engine.podTemplate": {"spec": {"tolerations": [PRESSURE]}}})
    assert pod(own)["tolerations"] == [PRESSURE]


def test_pull_secrets_of_all() -> None:
    a = user("a", "1", {"imagePullSecrets": [{"name": "x"}, {"name": "y"}]})
    b = user("b", "2", {"imagePullSecrets": [{"name": "y"}, {"name": "z"}]})
    assert pod(a, b)["imagePullSecrets"] == [{"name": "x"}, {"name": "y"}, {"name": "z"}]
    assert "imagePullSecrets" not in pod(epd())


def test_the_greatest_resources_and_no_limit_that_one_user_leaves_out() -> None:
    a = user("a", "1", {f"{COLLECTION}.resources": {"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"cpu": 2}}})
    b = user("b", "2", {f"{COLLECTION}.resources": {"requests": {"cpu": "900m", "memory": "1Gi"}, "limits": {}}})
    c = user("c", "3", {f"{COLLECTION}.resources": {"limits": {"cpu": "2500m", "memory": "1Gi"}}})
    assert container(a, b)["resources"] == {"requests": {"cpu": "1", "memory": "1Gi"}}
    assert container(a, c)["resources"] == {"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"cpu": "2500m"}}


def test_the_oldest_pod_template_wins() -> None:
    def template(value: str, **more: Any) -> dict[str, Any]:
        return {
            f"{COLLECTION}.podTemplate": {"metadata": {"labels": {"team": value}}, "spec": {"priorityClassName": value}}
        }

    child = collector_deployment([user("a", "2", template("new")), user("b", "1", template("old"))], CONTEXT)
    found = child["spec"]["template"]
    assert (found["metadata"]["labels"]["team"], found["spec"]["priorityClassName"]) == ("old", "old")


def test_our_labels_and_ids_stand() -> None:
    template = {"metadata": {"labels": {"epd.dev/collector": "x"}}, "spec": {"securityContext": None}}
    found = collector_deployment([user("a", "1", {f"{COLLECTION}.podTemplate": template})], CONTEXT)["spec"]["template"]
    assert found["metadata"]["labels"]["epd.dev/collector"] == names.collector("ec", "qwen")
    assert found["spec"]["securityContext"] == {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000}


@pytest.mark.parametrize(
    ("changes", "access_modes", "held"),
    [
        ({}, (), False),
        ({}, ("ReadWriteMany",), False),
        ({}, ("ReadWriteOnce", "ReadWriteMany"), False),
        ({}, ("ReadWriteOnce",), True),
        (RWO, (), True),
    ],
)
def test_a_volume_of_one_node_holds_it_beside_its_engines(
    changes: dict[str, Any], access_modes: tuple[str, ...], held: bool
) -> None:
    spec = pod(epd(changes), access_modes=access_modes)
    terms = spec.get("affinity", {}).get("podAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", [])
    beside = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {
            "matchExpressions": [
                {"key": "epd.dev/name", "operator": "In", "values": ["qwen-vl"]},
                {"key": "llm-d.ai/role", "operator": "Exists"},
            ]
        },
    }
    assert terms == ([beside] if held else [])


@pytest.mark.parametrize(("access_modes", "told"), [(("ReadWriteMany",), False), (("ReadWriteOnce",), True)])
def test_a_volume_of_one_node_tells_the_node_of_its_engines(access_modes: tuple[str, ...], told: bool) -> None:
    def annotations(node: str) -> dict[str, str]:
        child = collector_deployment([epd({})], CONTEXT, access_modes=access_modes, node=node)
        found: dict[str, str] = child["spec"]["template"]["metadata"]["annotations"]
        return found

    assert annotations("n1") == annotations("") | ({"epd.dev/node": "n1"} if told else {})


def test_a_change_of_the_policy_restarts_nothing() -> None:
    changes = {
        f"{COLLECTION}.{field}": value for field, value in (("maxSize", "1Gi"), ("dryRun", True), ("minIdle", "1h"))
    }
    assert collector_deployment([user("a", "1", changes)], CONTEXT) == collector_deployment([user("a", "1")], CONTEXT)


def test_the_collector_reads_what_is_written_for_it() -> None:
    found = build_parser().parse_args(container(user("a"))["args"])
    assert (found.claim, found.sub_path, found.root) == ("ec", "qwen", "/var/lib/epd/encoder-cache")
    assert found.port == names.COLLECTOR_PORT
